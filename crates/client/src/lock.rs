//! How a lock is to be taken.

use crate::client::Client;
use crate::driver::Answer;
use crate::error::Error;
use crate::guard::Guard;
use crate::reentry::{Entered, WaitLimit};
use crate::token::Token;
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, request};
use std::time::Duration;

/// A wait that ends only with its session.
pub(crate) const FOREVER: u64 = u64::MAX;

/// A lock that is to be taken: say how, then [`Lock::acquire`].
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

    /// Gives it a lease of its own, renewed in the background, instead of the session's: it may
    /// outlive the session. A year at most.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.acquire.ttl_ms = Some(millis(ttl));
        self
    }

    /// How long [`Lock::acquire`] stands in line; forever unless said otherwise. With no time at
    /// all it is a try, and the error says who holds the lock.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.acquire.wait_ms = Some(millis(wait));
        self
    }

    /// Share the lock with other shared holders.
    pub fn shared(mut self) -> Self {
        self.acquire.mode = proto::Mode::Shared.into();
        self
    }

    /// One of so many permits. All who ask must say the same number.
    pub fn permit_of(mut self, permits: u32) -> Self {
        self.acquire.mode = proto::Mode::Permit.into();
        self.acquire.permits = permits;
        self
    }

    /// Declares that the work keeps this other lock while it waits: a wait that would create a
    /// cycle is refused.
    pub fn holding(mut self, other: &Guard) -> Self {
        self.acquire.claims.push(other.token().get());
        self
    }

    /// The same for a lock that another process keeps, by its token.
    pub fn holding_token(mut self, token: impl Into<Token>) -> Self {
        self.acquire.claims.push(token.into().get());
        self
    }

    /// What the holder is called, for people who look at the lock.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.acquire.label = Some(Bytes::from(label.into()));
        self
    }

    /// A few bytes left on the lock: the next holder hears them.
    pub fn note(mut self, note: impl AsRef<[u8]>) -> Self {
        self.acquire.note = Some(Bytes::copy_from_slice(note.as_ref()));
        self
    }

    /// If this holder dies, delay the next grant by this long.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.acquire.lock_delay_ms = millis(delay);
        self
    }

    /// If this client holds the lock already, taken in this way and in the same mode, it gets
    /// another guard of the same ticket at once. The lock is let go when the last of them goes.
    ///
    /// This counts for the whole client with all its clones, whichever task or thread they are
    /// in: who must exclude another one needs a client of its own. What else was said (lease,
    /// label, note) counts for the first guard only.
    pub fn reentrant(mut self) -> Self {
        self.reentrant = true;
        self
    }

    /// Takes it if that can be done at once; none if somebody else holds it or stands in line.
    ///
    /// If the future is dropped and the lock was taken meanwhile, it is let go.
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

    /// Takes it, when its turn comes.
    ///
    /// If the future is dropped, its ticket leaves the line; if its turn came meanwhile, the lock
    /// is let go.
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

/// As the server counts it. Nothing but nothing is nothing.
pub(crate) fn millis(duration: Duration) -> u64 {
    let rounded_up = duration.as_nanos().div_ceil(1_000_000);
    u64::try_from(rounded_up).unwrap_or(u64::MAX).min(u64::MAX - 1)
}
