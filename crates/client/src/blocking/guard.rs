//! A lock that is held.

use super::Thread;
use crate::detached::Detached;
use crate::error::{EndReason, Error};
use crate::guard_state::{Health, Revocation};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A lock that is held, and kept alive until it is released or dropped. What needs no waiting is
/// asked of the [`crate::Guard`] within: `token()`, `ending()`, `health()`, `remaining()`.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server_blocking(|servers| {
/// # let client = holdfast_client::blocking::Client::connect(&servers)?;
/// let guard = client.lock("ledger").acquire()?;
/// for page in 1..=3 {
///     if let Some(how) = guard.is_lost() {
///         panic!("stop before page {page}: somebody else may hold the lock now ({how})");
///     }
///     guard.note(Some(format!("page {page}").as_bytes()))?;
/// }
/// guard.release()?;
/// # Ok(()) }) }
/// ```
#[derive(Debug)]
pub struct Guard {
    pub(super) guard: crate::Guard,
    // Goes last: letting go needs it.
    pub(super) thread: Arc<Thread>,
}

impl Deref for Guard {
    type Target = crate::Guard;

    fn deref(&self) -> &crate::Guard {
        &self.guard
    }
}

impl Guard {
    /// Whether the lease is over or may be, and how: look before each step of the work.
    pub fn is_lost(&self) -> Option<EndReason> {
        match self.guard.health() {
            Health::Lost(how) => Some(how),
            Health::Good | Health::Jeopardy => None,
        }
    }

    /// Waits until the lease is lost, at most so long: [`crate::Guard::lost`].
    pub fn wait_lost(&self, at_most: Duration) -> Option<EndReason> {
        self.thread.wait_for(async { timeout(at_most, self.guard.lost()).await.ok() })
    }

    /// Waits until somebody asks the holder to let go, at most so long; a time of zero only looks.
    pub fn wait_asked_to_let_go(&self, at_most: Duration) -> Option<Revocation> {
        self.thread.wait_for(async { timeout(at_most, self.guard.asked_to_let_go()).await.ok() })
    }

    /// Leaves another note on the lock: [`crate::Guard::note`].
    pub fn note(&self, note: Option<&[u8]>) -> Result<(), Error> {
        self.thread.wait_for(self.guard.note(note))
    }

    /// What dead holders left is put right: [`crate::Guard::recovered`].
    pub fn recovered(&self) -> Result<(), Error> {
        self.thread.wait_for(self.guard.recovered())
    }

    /// From reader to writer: [`crate::Guard::upgrade`].
    pub fn upgrade(&mut self, wait: Option<Duration>) -> Result<(), Error> {
        self.thread.wait_for(self.guard.upgrade(wait))
    }

    /// From writer to reader: [`crate::Guard::downgrade`].
    pub fn downgrade(&mut self) -> Result<(), Error> {
        self.thread.wait_for(self.guard.downgrade())
    }

    /// Gives up the guard without releasing the lock: [`crate::Guard::detach`].
    pub fn detach(self) -> Result<Detached, (Self, Error)> {
        let Self { guard, thread } = self;
        let detached = thread.wait_for(guard.detach());
        detached.map_err(|(guard, error)| (Self { guard, thread }, error))
    }

    /// Lets go, with a certain answer: [`crate::Guard::release`].
    pub fn release(self) -> Result<(), Error> {
        let Self { guard, thread } = self;
        thread.wait_for(guard.release())
    }
}
