//! A held lock.

use super::Thread;
use crate::detached::Detached;
use crate::error::{EndReason, Error};
use crate::guard_state::{Health, Revocation};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A held lock, kept alive until it is released or dropped. It dereferences to [`crate::Guard`] for
/// the methods that don't wait: `token()`, `ending()`, `health()`, `remaining()`.
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
    // Dropped last: releasing needs it.
    pub(super) thread: Arc<Thread>,
}

impl Deref for Guard {
    type Target = crate::Guard;

    fn deref(&self) -> &crate::Guard {
        &self.guard
    }
}

impl Guard {
    /// How the lease ended, if it is over or may be. Check it before each step of the work.
    pub fn is_lost(&self) -> Option<EndReason> {
        match self.guard.health() {
            Health::Lost(how) => Some(how),
            Health::Good | Health::Jeopardy => None,
        }
    }

    /// Waits until the lease is lost, up to a limit: [`crate::Guard::lost`].
    pub fn wait_lost(&self, at_most: Duration) -> Option<EndReason> {
        self.thread.wait_for(async { timeout(at_most, self.guard.lost()).await.ok() })
    }

    /// Waits until the holder is asked to release, up to a limit; zero does not wait.
    pub fn wait_asked_to_let_go(&self, at_most: Duration) -> Option<Revocation> {
        self.thread.wait_for(async { timeout(at_most, self.guard.asked_to_let_go()).await.ok() })
    }

    /// Replaces the note on the lock: [`crate::Guard::note`].
    pub fn note(&self, note: Option<&[u8]>) -> Result<(), Error> {
        self.thread.wait_for(self.guard.note(note))
    }

    /// Reports that the work of dead holders has been recovered: [`crate::Guard::recovered`].
    pub fn recovered(&self) -> Result<(), Error> {
        self.thread.wait_for(self.guard.recovered())
    }

    /// Turns a reader into the writer: [`crate::Guard::upgrade`].
    pub fn upgrade(&mut self, wait: Option<Duration>) -> Result<(), Error> {
        self.thread.wait_for(self.guard.upgrade(wait))
    }

    /// Turns a writer into a reader: [`crate::Guard::downgrade`].
    pub fn downgrade(&mut self) -> Result<(), Error> {
        self.thread.wait_for(self.guard.downgrade())
    }

    /// Gives up the guard without releasing the lock: [`crate::Guard::detach`].
    pub fn detach(self) -> Result<Detached, (Self, Error)> {
        let Self { guard, thread } = self;
        let detached = thread.wait_for(guard.detach());
        detached.map_err(|(guard, error)| (Self { guard, thread }, error))
    }

    /// Releases the lock, with a definite answer: [`crate::Guard::release`].
    pub fn release(self) -> Result<(), Error> {
        let Self { guard, thread } = self;
        thread.wait_for(guard.release())
    }
}
