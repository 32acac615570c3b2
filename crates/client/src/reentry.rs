//! Re-entrancy, counted here: the server knows only held or not.

use crate::error::Error;
use crate::fate::Health;
use crate::guard::Guard;
use crate::hold::Hold;
use crate::lock::{FOREVER, millis};
use bytes::Bytes;
use holdfast_proto::v1 as proto;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::time::{Instant, timeout_at};

/// Entries that are kept before those of no use are swept out.
const SWEEP_AT_LEAST: usize = 64;

/// Which locks this client holds so that it may take them again.
#[derive(Debug, Default)]
pub(crate) struct Reentries {
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    by_key: HashMap<Key, Slot>,
    sweep_at: usize,
}

/// One at a time asks the server; the next one finds what that one got.
type Slot = Arc<AsyncMutex<Known>>;

/// What this client holds, if it still does.
#[derive(Debug, Default)]
pub(crate) struct Known {
    hold: Weak<Hold>,
    /// The hold's own: see [`Hold::change`].
    change: Arc<AsyncMutex<()>>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    names: Vec<Bytes>,
    mode: i32,
}

/// Until when an acquire may wait, here and in line together.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    NoWait,
    Forever,
    At(Instant),
}

impl Until {
    pub(crate) fn of(wait_ms: Option<u64>) -> Self {
        match wait_ms {
            None | Some(0) => Self::NoWait,
            Some(FOREVER) => Self::Forever,
            Some(ms) => {
                let end = Instant::now().checked_add(Duration::from_millis(ms));
                end.map_or(Self::Forever, Self::At)
            }
        }
    }

    /// What is left of a wait.
    pub(crate) fn left_ms(self, wait_ms: Option<u64>) -> Option<u64> {
        match self {
            Self::NoWait | Self::Forever => wait_ms,
            Self::At(end) => Some(millis(end.saturating_duration_since(Instant::now()))),
        }
    }

    /// Locks it, if that can be done in time.
    async fn lock<T>(self, what: Arc<AsyncMutex<T>>) -> Result<OwnedMutexGuard<T>, Error> {
        let busy = || Error::NotAcquired("this client is waiting for it already".to_owned());
        match self {
            Self::NoWait => what.try_lock_owned().map_err(|_| busy()),
            Self::Forever => Ok(what.lock_owned().await),
            Self::At(end) => timeout_at(end, what.lock_owned()).await.map_err(|_| busy()),
        }
    }
}

impl Reentries {
    /// Waits until nobody else of this client asks for the same.
    pub(crate) async fn enter(
        &self,
        acquire: &proto::Acquire,
        until: Until,
    ) -> Result<OwnedMutexGuard<Known>, Error> {
        until.lock(self.slot(acquire)).await
    }

    fn slot(&self, acquire: &proto::Acquire) -> Slot {
        let mut names = acquire.names.clone();
        names.sort_unstable();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.by_key.len() >= slots.sweep_at {
            slots.by_key.retain(|_, slot| {
                let idle =
                    |slot: &Slot| slot.try_lock().is_ok_and(|known| known.hold.strong_count() == 0);
                Arc::strong_count(slot) > 1 || !idle(slot)
            });
            slots.sweep_at = (slots.by_key.len() * 2).max(SWEEP_AT_LEAST);
        }
        slots.by_key.entry(Key { names, mode: acquire.mode }).or_default().clone()
    }
}

impl Known {
    /// What is held already, if it still is and in that mode. If its mode is being changed, waits
    /// to see what comes of it.
    pub(crate) async fn still_held(
        &self,
        acquire: &proto::Acquire,
        until: Until,
    ) -> Result<Option<Arc<Hold>>, Error> {
        if self.hold.strong_count() == 0 {
            return Ok(None);
        }
        let _settled = until.lock(self.change.clone()).await?;
        let Some(hold) = self.hold.upgrade() else { return Ok(None) };
        let current = hold.current();
        let good = !matches!(current.fate.health(), Health::Lost(_));
        Ok((good && current.mode() == acquire.mode()).then_some(hold))
    }

    pub(crate) fn remember(&mut self, guard: &Guard) {
        (self.hold, self.change) = (guard.downgrade_hold(), guard.change());
    }
}
