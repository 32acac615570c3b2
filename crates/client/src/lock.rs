//! How a lock is to be taken.

use crate::client::Client;
use crate::error::Error;
use crate::guard::Guard;
use crate::link::Answer;
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, request, standing, to_client};
use std::time::Duration;

/// A wait that ends only with its session.
const FOREVER: u64 = u64::MAX;

/// A lock that is to be taken: say how, then [`Lock::acquire`].
#[derive(Debug, Clone)]
#[must_use = "nothing is taken until acquire is called"]
pub struct Lock {
    client: Client,
    acquire: proto::Acquire,
}

impl Lock {
    pub(crate) fn new(client: Client, names: Vec<Bytes>) -> Self {
        let acquire = proto::Acquire { names, wait_ms: Some(FOREVER), ..Default::default() };
        Self { client, acquire }
    }

    /// Gives it a lease of its own, renewed in the background, instead of the session's: it may
    /// outlive the session.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.acquire.ttl_ms = Some(millis(ttl));
        self
    }

    /// How long to stand in line; for ever unless said otherwise.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.acquire.wait_ms = Some(millis(wait));
        self
    }

    /// Not at all: take it if nobody is in line.
    pub fn no_wait(mut self) -> Self {
        self.acquire.wait_ms = None;
        self
    }

    /// Together with others that ask for it shared.
    pub fn shared(mut self) -> Self {
        self.acquire.mode = proto::Mode::Shared.into();
        self
    }

    /// One of so many permits.
    pub fn permit_of(mut self, permits: u32) -> Self {
        self.acquire.mode = proto::Mode::Permit.into();
        self.acquire.permits = permits;
        self
    }

    /// Declares that the work keeps this other lock while it waits: a wait that would close a
    /// circle is refused.
    pub fn holding(mut self, other: &Guard) -> Self {
        self.acquire.claims.push(other.token());
        self
    }

    /// What the holder is called, for people who look at the lock.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.acquire.label = Some(Bytes::from(label.into()));
        self
    }

    /// A few bytes left on the lock: the next holder hears them if this one dies.
    pub fn note(mut self, note: impl AsRef<[u8]>) -> Self {
        self.acquire.note = Some(Bytes::copy_from_slice(note.as_ref()));
        self
    }

    /// If this holder dies, nobody is served for so long.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.acquire.lock_delay_ms = millis(delay);
        self
    }

    /// Takes it.
    pub async fn acquire(self) -> Result<Guard, Error> {
        let what = request::What::Acquire(self.acquire.clone());
        let Answer { what, first_sent, fate } = self.client.ask(what, true).await?;
        let to_client::What::Standing(proto::Standing { what: Some(standing) }) = what else {
            return Err(Error::SessionLost);
        };
        match (standing, fate) {
            (standing::What::Held(grant), Some(fate)) => {
                Guard::new(self.client, grant, first_sent, fate).await
            }
            (standing::What::Over(over), _) => Err(Error::Over(crate::How::of(over.how))),
            _ => Err(Error::SessionLost),
        }
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX - 1)
}
