//! Re-entrancy, which is counted by the client: the server only knows whether a lock is held.

use crate::error::Error;
use crate::guard::Guard;
use crate::guard_state::GuardState;
use crate::held_ticket::HeldTicket;
use crate::lock::{FOREVER, millis};
use crate::timer::timeout_at;
use bytes::Bytes;
use holdfast_proto::v1 as proto;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, watch};
use tokio::time::Instant;

/// The least number of entries at which unused ones are swept.
const SWEEP_AT_LEAST: usize = 64;

/// The locks that this client holds and may acquire again.
#[derive(Debug, Default)]
pub(crate) struct Reentries {
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    by_key: HashMap<Key, Arc<Slot>>,
    sweep_at: usize,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    names: Vec<Bytes>,
    mode: i32,
}

#[derive(Debug, Default)]
struct Slot {
    known: Mutex<HeldByClient>,
    /// Only one caller at a time asks the server; the next one finds its result.
    asking: Arc<AsyncMutex<()>>,
    /// How many callers that may wait in line are asking the server, or are about to.
    waiting_callers: watch::Sender<usize>,
}

/// A ticket that this client holds, if it still does.
#[derive(Debug, Default, Clone)]
struct HeldByClient {
    ticket: Weak<HeldTicket>,
    state: Option<Arc<GuardState>>,
}

/// The result of looking up a re-entrant acquire.
pub(crate) enum Entered {
    /// This client already holds it.
    Held(Arc<HeldTicket>),
    /// It does not, and no other caller of this client asks the server until this is dropped.
    Ask(Asking),
}

/// The right to ask the server.
pub(crate) struct Asking {
    slot: Arc<Slot>,
    _alone: OwnedMutexGuard<()>,
    _patient: Option<WaitingCaller>,
}

impl Asking {
    pub(crate) fn remember(&self, guard: &Guard) {
        let (ticket, state) = (guard.downgrade_ticket(), Some(guard.state().clone()));
        *self.slot.known.lock().unwrap_or_else(PoisonError::into_inner) =
            HeldByClient { ticket, state };
    }
}

struct WaitingCaller(Arc<Slot>);

impl WaitingCaller {
    fn new(slot: &Arc<Slot>) -> Self {
        slot.waiting_callers.send_modify(|count| *count += 1);
        Self(slot.clone())
    }
}

impl Drop for WaitingCaller {
    fn drop(&mut self) {
        self.0.waiting_callers.send_modify(|count| *count -= 1);
    }
}

/// The time limit of an acquire, for waiting both here and in line.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitLimit {
    NoWait,
    Forever,
    At(Instant),
}

impl WaitLimit {
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

    /// How much of a wait is left.
    pub(crate) fn left_ms(self, wait_ms: Option<u64>) -> Option<u64> {
        match self {
            Self::NoWait | Self::Forever => wait_ms,
            Self::At(end) => Some(millis(end.saturating_duration_since(Instant::now()))),
        }
    }

    /// Waits for a future within the limit, if waiting is allowed at all.
    async fn wait_for<T>(self, what: impl Future<Output = T>) -> Result<T, Error> {
        match self {
            Self::NoWait => Err(busy()),
            Self::Forever => Ok(what.await),
            Self::At(end) => timeout_at(end, what).await.map_err(|_| busy()),
        }
    }
}

fn busy() -> Error {
    Error::NotAcquired("this client is waiting for it already".to_owned())
}

impl Reentries {
    /// Finds what this client holds, or waits until no other caller asks for the same.
    pub(crate) async fn enter(
        &self,
        acquire: &proto::Acquire,
        until: WaitLimit,
    ) -> Result<Entered, Error> {
        let slot = self.slot(acquire);
        if let Some(held) = slot.held(acquire.mode(), until).await? {
            return Ok(Entered::Held(held));
        }
        let waiting_callers =
            (!matches!(until, WaitLimit::NoWait)).then(|| WaitingCaller::new(&slot));
        let alone = slot.alone(until).await?;
        match slot.held(acquire.mode(), until).await? {
            Some(held) => Ok(Entered::Held(held)),
            None => Ok(Entered::Ask(Asking { slot, _alone: alone, _patient: waiting_callers })),
        }
    }

    fn slot(&self, acquire: &proto::Acquire) -> Arc<Slot> {
        let mut names = acquire.names.clone();
        names.sort_unstable();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.by_key.len() >= slots.sweep_at {
            slots.by_key.retain(|_, slot| {
                Arc::strong_count(slot) > 1 || slot.known().ticket.strong_count() > 0
            });
            slots.sweep_at = (slots.by_key.len() * 2).max(SWEEP_AT_LEAST);
        }
        slots.by_key.entry(Key { names, mode: acquire.mode }).or_default().clone()
    }
}

impl Slot {
    fn known(&self) -> HeldByClient {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The ticket that is held, if it still is and in this mode. While its mode is being changed,
    /// waits for the result.
    async fn held(
        &self,
        mode: proto::Mode,
        until: WaitLimit,
    ) -> Result<Option<Arc<HeldTicket>>, Error> {
        loop {
            let HeldByClient { ticket, state: Some(state) } = self.known() else { return Ok(None) };
            if ticket.strong_count() == 0 {
                return Ok(None);
            }
            // Once it has another guard, its mode can't change any more. Guards are counted under
            // the gate too, so one that is only inspected here is never counted.
            let fits = |held: &HeldTicket| {
                let current = held.current();
                !current.is_lost() && current.mode() == mode
            };
            let looked = state.gate.look(|| match ticket.upgrade() {
                Some(held) if fits(&held) => (Some(held), None),
                Some(held) => (None, Arc::into_inner(held)),
                None => (None, None),
            });
            match looked {
                // If it does not fit and its last guard was dropped in the meantime, it is released
                // here, outside of the gate.
                Some((fits, _last)) => return Ok(fits),
                None => until.wait_for(state.gate.settled()).await?,
            }
        }
    }

    /// Waits until no other caller asks the server. A caller that does not wait in line only waits
    /// for others of its kind, which are answered quickly.
    async fn alone(&self, until: WaitLimit) -> Result<OwnedMutexGuard<()>, Error> {
        let alone = self.asking.clone().lock_owned();
        if !matches!(until, WaitLimit::NoWait) {
            return until.wait_for(alone).await;
        }
        let mut waiting_callers = self.waiting_callers.subscribe();
        tokio::select! {
            biased;
            alone = alone => Ok(alone),
            _ = waiting_callers.wait_for(|count| *count > 0) => Err(busy()),
        }
    }
}
