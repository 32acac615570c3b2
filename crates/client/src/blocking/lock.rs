//! How to acquire a lock.

use super::{Guard, Thread};
use crate::error::Error;
use crate::token::Token;
use std::sync::Arc;
use std::time::Duration;

/// A lock to acquire: set the options, then call [`Lock::acquire`]. [`crate::Lock`] describes each
/// option.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server_blocking(|servers| {
/// # let client = holdfast_client::blocking::Client::connect(&servers)?;
/// let guard = client.lock("page").shared().wait(Duration::from_secs(30)).acquire()?;
/// assert!(guard.is_shared());
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is taken until acquire is called"]
pub struct Lock {
    lock: crate::Lock,
    // Dropped last: releasing needs it.
    thread: Arc<Thread>,
}

impl Lock {
    pub(super) fn new(thread: Arc<Thread>, lock: crate::Lock) -> Self {
        Self { lock, thread }
    }

    fn so(self, how: impl FnOnce(crate::Lock) -> crate::Lock) -> Self {
        Self { lock: how(self.lock), thread: self.thread }
    }

    /// Gives it a lease of its own: [`crate::Lock::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        self.so(|lock| lock.ttl(ttl))
    }

    /// How long to wait in line: [`crate::Lock::wait`].
    pub fn wait(self, wait: Duration) -> Self {
        self.so(|lock| lock.wait(wait))
    }

    /// Shares it with other readers: [`crate::Lock::shared`].
    pub fn shared(self) -> Self {
        self.so(crate::Lock::shared)
    }

    /// Acquires one of this many permits: [`crate::Lock::permit_of`].
    pub fn permit_of(self, permits: u32) -> Self {
        self.so(|lock| lock.permit_of(permits))
    }

    /// Declares another lock that the work keeps: [`crate::Lock::holding`].
    pub fn holding(self, other: &Guard) -> Self {
        self.so(|lock| lock.holding(other))
    }

    /// Declares another lock that the work keeps, by its token: [`crate::Lock::holding_token`].
    pub fn holding_token(self, token: impl Into<Token>) -> Self {
        self.so(|lock| lock.holding_token(token))
    }

    /// The holder's name for itself: [`crate::Lock::label`].
    pub fn label(self, label: impl Into<String>) -> Self {
        self.so(|lock| lock.label(label))
    }

    /// A few bytes to leave on the lock: [`crate::Lock::note`].
    pub fn note(self, note: impl AsRef<[u8]>) -> Self {
        self.so(|lock| lock.note(note))
    }

    /// Delays the next grant if this holder dies: [`crate::Lock::lock_delay`].
    pub fn lock_delay(self, delay: Duration) -> Self {
        self.so(|lock| lock.lock_delay(delay))
    }

    /// Lets this client acquire it again: [`crate::Lock::reentrant`].
    pub fn reentrant(self) -> Self {
        self.so(crate::Lock::reentrant)
    }

    /// Acquires it if it is free: [`crate::Lock::try_acquire`].
    pub fn try_acquire(self) -> Result<Option<Guard>, Error> {
        let Self { lock, thread } = self;
        let guard = thread.wait_for(lock.try_acquire())?;
        Ok(guard.map(|guard| Guard { guard, thread }))
    }

    /// Waits in line and acquires it: [`crate::Lock::acquire`].
    pub fn acquire(self) -> Result<Guard, Error> {
        let Self { lock, thread } = self;
        let guard = thread.wait_for(lock.acquire())?;
        Ok(Guard { guard, thread })
    }
}
