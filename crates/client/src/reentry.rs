//! Re-entrancy, counted here: the server knows only held or not.

use crate::error::Error;
use crate::fate::Health;
use crate::hold::Hold;
use bytes::Bytes;
use holdfast_proto::v1 as proto;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

/// Entries that are kept before those of no use are swept out.
const SWEEP_AT_LEAST: usize = 64;

/// Which locks this client holds so that it may take them again.
#[derive(Debug, Default)]
pub(crate) struct Reentries {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    slots: HashMap<Key, Slot>,
    sweep_at: usize,
}

/// One at a time asks the server; the next one finds what that one got.
type Slot = Arc<tokio::sync::Mutex<Weak<Hold>>>;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    names: Vec<Bytes>,
    mode: i32,
}

impl Reentries {
    /// Waits until nobody else of this client asks for the same.
    pub(crate) async fn enter(
        &self,
        acquire: &proto::Acquire,
    ) -> Result<OwnedMutexGuard<Weak<Hold>>, Error> {
        let slot = self.slot(acquire);
        let busy = || Error::NotAcquired("this client is waiting for it already".to_owned());
        match acquire.wait_ms {
            None | Some(0) => slot.try_lock_owned().map_err(|_| busy()),
            Some(u64::MAX) => Ok(slot.lock_owned().await),
            Some(ms) => {
                let entered = timeout(Duration::from_millis(ms), slot.lock_owned()).await;
                entered.map_err(|_| busy())
            }
        }
    }

    fn slot(&self, acquire: &proto::Acquire) -> Slot {
        let mut names = acquire.names.clone();
        names.sort_unstable();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.slots.len() >= known.sweep_at {
            known.slots.retain(|_, slot| {
                let idle = |slot: &Slot| slot.try_lock().is_ok_and(|hold| hold.strong_count() == 0);
                Arc::strong_count(slot) > 1 || !idle(slot)
            });
            known.sweep_at = (known.slots.len() * 2).max(SWEEP_AT_LEAST);
        }
        known.slots.entry(Key { names, mode: acquire.mode }).or_default().clone()
    }
}

/// What is held already, if it still is and in that mode.
pub(crate) fn still_held(known: &Weak<Hold>, acquire: &proto::Acquire) -> Option<Arc<Hold>> {
    let hold = known.upgrade()?;
    let good = !matches!(hold.fate.health(), Health::Lost(_));
    (good && hold.mode() == acquire.mode()).then_some(hold)
}
