//! The same API for synchronous programs.
//!
//! ```
//! # fn main() -> Result<(), holdfast_locks::Error> {
//! use holdfast_locks::blocking::Locks;
//!
//! let locks = Locks::connect("memory:")?;
//! let guard = locks.lock("seat-12A").acquire()?;
//! guard.release()?;
//! # Ok(()) }
//! ```
//!
//! These calls block the calling thread. Don't use them inside an async runtime.

use crate::guard::{Ending, LeaseRef, Lost};
use crate::locks::Inspection;
use crate::promises::Promises;
use crate::token::Token;
use crate::{Error, runtime};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// Runs a future on the library's threads and waits for it.
fn wait<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Result<T, Error> {
    let (reply, answer) = sync_channel(1);
    runtime::handle()?.spawn(async move { drop(reply.send(future.await)) });
    answer.recv().map_err(|_| Error::Unreachable("internal error: the task died".to_owned()))
}

/// See [`crate::Locks`].
#[derive(Debug, Clone)]
pub struct Locks(crate::Locks);

impl Locks {
    /// See [`crate::Locks::connect`].
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(crate::Locks::builder(), url)
    }

    /// Connects with the settings of `builder`.
    pub fn connect_with(builder: crate::Builder, url: &str) -> Result<Self, Error> {
        let url = url.to_owned();
        wait(async move { builder.connect(&url).await })?.map(Self)
    }

    /// See [`crate::Locks::lock`].
    pub fn lock(&self, name: impl Into<String>) -> Lock {
        Lock(self.0.lock(name))
    }

    /// See [`crate::Locks::promises`].
    pub fn promises(&self) -> &'static Promises {
        self.0.promises()
    }

    /// See [`crate::Locks::inspect`].
    pub fn inspect(&self, name: &str) -> Result<Option<Inspection>, Error> {
        let (locks, name) = (self.0.clone(), name.to_owned());
        wait(async move { locks.inspect(&name).await })?
    }

    /// See [`crate::Locks::attach`].
    pub fn attach(&self, lease: LeaseRef) -> Result<Lease, Error> {
        let locks = self.0.clone();
        wait(async move { locks.attach(lease).await })?.map(Lease)
    }

    /// See [`crate::Locks::close`].
    pub fn close(self) {
        // Only starting a thread can fail, and then nothing is in progress.
        let _ = wait(self.0.close());
    }
}

/// See [`crate::Lock`].
#[derive(Debug, Clone)]
#[must_use = "nothing is taken until acquire is called"]
pub struct Lock(crate::Lock);

impl Lock {
    /// See [`crate::Lock::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// See [`crate::Lock::wait`].
    pub fn wait(self, wait: Duration) -> Self {
        Self(self.0.wait(wait))
    }

    /// See [`crate::Lock::label`].
    pub fn label(self, label: impl Into<String>) -> Self {
        Self(self.0.label(label))
    }

    /// See [`crate::Lock::note`].
    pub fn note(self, note: impl Into<String>) -> Self {
        Self(self.0.note(note))
    }

    /// See [`crate::Lock::fixed`].
    pub fn fixed(self) -> Self {
        Self(self.0.fixed())
    }

    /// See [`crate::Lock::acquire`].
    pub fn acquire(self) -> Result<Guard, Error> {
        wait(self.0.acquire())?.map(Guard)
    }

    /// See [`crate::Lock::try_acquire`].
    pub fn try_acquire(self) -> Result<Option<Guard>, Error> {
        Ok(wait(self.0.try_acquire())??.map(Guard))
    }
}

/// See [`crate::Guard`].
#[derive(Debug)]
pub struct Guard(crate::Guard);

impl Guard {
    /// See [`crate::Guard::name`].
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// See [`crate::Guard::token`].
    pub fn token(&self) -> Option<Token> {
        self.0.token()
    }

    /// See [`crate::Guard::ending`].
    pub fn ending(&self) -> Option<&Ending> {
        self.0.ending()
    }

    /// See [`crate::Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// See [`crate::Guard::is_lost`].
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Blocks until the lease is over, for at most `limit`. Returns `None` if it is still valid
    /// then.
    pub fn wait_lost(&self, limit: Duration) -> Option<Lost> {
        let lost = self.0.watch_lost();
        wait(async move { tokio::time::timeout(limit, lost).await.ok() }).ok().flatten()
    }

    /// See [`crate::Guard::extend`].
    pub fn extend(&self, ttl: Duration) -> Result<(), Error> {
        wait(self.0.start_extend(ttl))?
    }

    /// See [`crate::Guard::release`].
    pub fn release(self) -> Result<(), Error> {
        wait(self.0.release())?
    }

    /// See [`crate::Guard::detach`].
    pub fn detach(self) -> Result<LeaseRef, (Self, Error)> {
        let handed_over = wait(self.0.start_hand_over()).flatten();
        self.0.into_ref(handed_over).map_err(|(guard, error)| (Self(guard), error))
    }
}

/// See [`crate::Lease`].
#[derive(Debug)]
pub struct Lease(crate::Lease);

impl Lease {
    /// See [`crate::Lease::name`].
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// See [`crate::Lease::token`].
    pub fn token(&self) -> Option<Token> {
        self.0.token()
    }

    /// See [`crate::Lease::check`].
    pub fn check(&self) -> Result<Duration, Error> {
        wait(self.0.start_check())?
    }

    /// See [`crate::Lease::extend`].
    pub fn extend(&self, ttl: Duration) -> Result<(), Error> {
        wait(self.0.start_extend(ttl))?
    }

    /// See [`crate::Lease::release`].
    pub fn release(self) -> Result<(), Error> {
        wait(self.0.release())?
    }
}
