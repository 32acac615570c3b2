//! Whether the mode of a held ticket is being changed. Until an upgrade or a downgrade is settled,
//! nobody knows which ticket a request would be about; so requests wait, and re-entrant acquires too.
//!
//! Looking does not lock anybody out: only a change does.

use crate::guard_state::GuardState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Part of a guard's state, whichever ticket it has.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    changing: Mutex<bool>,
    settled: Notify,
}

impl Gate {
    fn changing(&self) -> MutexGuard<'_, bool> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a change if `check` agrees; false if another one is not settled yet.
    pub(crate) fn begin<E>(&self, check: impl FnOnce() -> Result<(), E>) -> Result<bool, E> {
        let mut changing = self.changing();
        if *changing {
            return Ok(false);
        }
        check()?;
        *changing = true;
        Ok(true)
    }

    /// Looks while no change can begin; none if one is not settled yet.
    pub(crate) fn look<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        let changing = self.changing();
        (!*changing).then(look)
    }

    /// Looks while nobody else looks and no change begins, whether or not one is settled.
    pub(crate) fn look_alone<T>(&self, look: impl FnOnce() -> T) -> T {
        let _changing = self.changing();
        look()
    }

    /// Waits until no change is under way.
    pub(crate) async fn settled(&self) {
        loop {
            let settled = self.settled.notified();
            if !*self.changing() {
                return;
            }
            settled.await;
        }
    }
}

/// A change that is not settled. Dropping it settles it.
#[derive(Debug)]
pub(crate) struct Changing(pub(crate) Arc<GuardState>);

impl Drop for Changing {
    fn drop(&mut self) {
        let gate = &self.0.gate;
        *gate.changing() = false;
        gate.settled.notify_waiters();
    }
}
