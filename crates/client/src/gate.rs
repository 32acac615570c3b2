//! Whether the mode of a held ticket is being changed. Until an upgrade or downgrade is settled, it
//! is unknown which ticket a request would be about; so requests and re-entrant acquires wait.
//!
//! Readers don't exclude each other: only a change does.

use crate::guard_state::GuardState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Part of a guard's state. It stays the same when an upgrade replaces the ticket.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    changing: Mutex<bool>,
    settled: Notify,
}

impl Gate {
    fn changing(&self) -> MutexGuard<'_, bool> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a change if `check` agrees; returns false if another one is unsettled.
    pub(crate) fn begin<E>(&self, check: impl FnOnce() -> Result<(), E>) -> Result<bool, E> {
        let mut changing = self.changing();
        if *changing {
            return Ok(false);
        }
        check()?;
        *changing = true;
        Ok(true)
    }

    /// Calls `look` while no change can start; `None` if one is unsettled.
    pub(crate) fn look<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        let changing = self.changing();
        (!*changing).then(look)
    }

    /// Calls `look` while no other `look` runs and no change starts, even if one is unsettled.
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

/// An unsettled change. Dropping it settles it.
#[derive(Debug)]
pub(crate) struct Changing(pub(crate) Arc<GuardState>);

impl Drop for Changing {
    fn drop(&mut self) {
        let gate = &self.0.gate;
        *gate.changing() = false;
        gate.settled.notify_waiters();
    }
}
