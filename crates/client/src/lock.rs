//! How to acquire a lock.

use crate::client::Client;
use crate::driver::Answer;
use crate::error::Error;
use crate::guard::Guard;
use crate::reentry::{Entered, WaitLimit};
use crate::token::Token;
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, request};
use std::time::Duration;

/// The `wait_ms` of a wait that ends only with its session.
pub(crate) const FOREVER: u64 = u64::MAX;

/// A lock to acquire: set the options, then call [`Lock::acquire`].
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// # let client = Client::connect(&servers).await?;
/// let guard = client
///     .lock("seat-12A")
///     .wait(Duration::from_secs(30))
///     .label("till 3")
///     .note("half paid")
///     .acquire()
///     .await?;
/// assert!(guard.token().get() > 0);
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is taken until acquire is called"]
pub struct Lock {
    client: Client,
    acquire: proto::Acquire,
    reentrant: bool,
}

impl Lock {
    pub(crate) fn new(client: Client, names: Vec<Bytes>) -> Self {
        let acquire = proto::Acquire { names, wait_ms: Some(FOREVER), ..Default::default() };
        Self { client, acquire, reentrant: false }
    }

    /// Gives the lock a lease of its own, renewed in the background, instead of the session's, so
    /// that it may outlive the session. At most a year.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.acquire.ttl_ms = Some(millis(ttl));
        self
    }

    /// How long [`Lock::acquire`] waits in line. Default: forever. With zero it does not wait,
    /// and the error names the holder.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.acquire.wait_ms = Some(millis(wait));
        self
    }

    /// Shares the lock with other readers.
    pub fn shared(mut self) -> Self {
        self.acquire.mode = proto::Mode::Shared.into();
        self
    }

    /// Acquires one of this many permits. All users must give the same number.
    pub fn permit_of(mut self, permits: u32) -> Self {
        self.acquire.mode = proto::Mode::Permit.into();
        self.acquire.permits = permits;
        self
    }

    /// Declares that the work keeps this other lock while it waits: a wait that would close a cycle
    /// is refused.
    pub fn holding(mut self, other: &Guard) -> Self {
        self.acquire.claims.push(other.token().get());
        self
    }

    /// Like [`Lock::holding`], for a lock that another process holds, by its token.
    pub fn holding_token(mut self, token: impl Into<Token>) -> Self {
        self.acquire.claims.push(token.into().get());
        self
    }

    /// The holder's name for itself, for people who look at the lock.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.acquire.label = Some(Bytes::from(label.into()));
        self
    }

    /// A few bytes to leave on the lock, which the next holder receives.
    pub fn note(mut self, note: impl AsRef<[u8]>) -> Self {
        self.acquire.note = Some(Bytes::copy_from_slice(note.as_ref()));
        self
    }

    /// If this holder dies, the next grant is delayed by this long.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.acquire.lock_delay_ms = millis(delay);
        self
    }

    /// If this client already holds the lock, acquired with this option and in the same mode, it
    /// gets another guard of the same ticket at once. The lock is released with its last guard.
    ///
    /// This applies to the client and all its clones, in every task and thread: callers that must
    /// exclude each other need separate clients. The other options (lease, label, note) apply to
    /// the first guard only.
    pub fn reentrant(mut self) -> Self {
        self.reentrant = true;
        self
    }

    /// Acquires the lock if it is free; `None` if somebody holds it or waits for it.
    ///
    /// If the future is dropped, a lock that was acquired in the meantime is released.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
    /// # fn main() { with_server(async |servers| {
    /// # let client = Client::connect(servers).await?;
    /// if let Some(guard) = client.lock("seat-12A").try_acquire().await? {
    ///     println!("token {}", guard.token());
    ///     assert!(client.lock("seat-12A").try_acquire().await?.is_none());
    /// }
    /// # Ok(()) }) }
    /// ```
    pub async fn try_acquire(mut self) -> Result<Option<Guard>, Error> {
        self.acquire.wait_ms = None;
        match self.acquire().await {
            Ok(guard) => Ok(Some(guard)),
            Err(Error::NotAcquired(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits in line and acquires the lock.
    ///
    /// If the future is dropped, its ticket leaves the line, or is released if it was served in the
    /// meantime.
    pub async fn acquire(mut self) -> Result<Guard, Error> {
        if !self.reentrant {
            return self.acquire_ticket().await;
        }
        let until = WaitLimit::of(self.acquire.wait_ms);
        let asking = match self.client.reentries().enter(&self.acquire, until).await? {
            Entered::Held(held) => return Ok(Guard::new(self.client, held)),
            Entered::Ask(asking) => asking,
        };
        self.acquire.wait_ms = until.left_ms(self.acquire.wait_ms);
        let guard = self.acquire_ticket().await?;
        asking.remember(&guard);
        Ok(guard)
    }

    async fn acquire_ticket(self) -> Result<Guard, Error> {
        let room = self.client.room_for_ticket()?;
        let what = request::What::Acquire(self.acquire);
        match self.client.ask(what, room).await? {
            Answer::Held(held) => Ok(Guard::new(self.client, held)),
            Answer::Reply(_) | Answer::Upgraded => Err(Error::SessionLost),
        }
    }
}

/// Converts to milliseconds, rounding up so that only zero becomes zero.
pub(crate) fn millis(duration: Duration) -> u64 {
    let rounded_up = duration.as_nanos().div_ceil(1_000_000);
    u64::try_from(rounded_up).unwrap_or(u64::MAX).min(u64::MAX - 1)
}
