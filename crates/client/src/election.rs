//! Elections: the leader is the holder of a lock, and its label is the value that it campaigned
//! with.

use crate::client::Client;
use crate::error::Error;
use crate::guard::Guard;
use crate::token::Token;
use crate::watch::{Event, Watch};
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, watch_request};
use std::ops::Deref;

/// The leader of an election.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// # let client = Client::connect(&servers).await?;
/// let leadership = client.election("scheduler").campaign("10.0.0.7:9000").await?;
/// let leader = client.election("scheduler").leader().await?.expect("somebody leads");
/// assert_eq!((leader.token, leader.value), (leadership.token(), Some("10.0.0.7:9000".into())));
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// Its fencing token: the leader's term.
    pub token: Token,
    /// The value that it campaigned with.
    pub value: Option<Bytes>,
}

/// An election.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// # let client = Client::connect(&servers).await?;
/// let election = client.election("scheduler");
/// let leadership = election.campaign("10.0.0.7:9000").await?;
/// let leader = election.leader().await?.expect("somebody leads");
/// assert_eq!(leader.token, leadership.token());
/// assert_eq!(leader.value.as_deref(), Some(&b"10.0.0.7:9000"[..]));
/// leadership.resign().await?;
/// assert_eq!(election.leader().await?, None);
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone)]
pub struct Election {
    client: Client,
    name: Bytes,
}

impl Election {
    pub(crate) fn new(client: Client, name: Bytes) -> Self {
        Self { client, name }
    }

    /// Campaigns, and returns once elected. Dropping the future ends the campaign.
    pub async fn campaign(&self, value: impl Into<String>) -> Result<Leadership, Error> {
        let guard = self.client.lock(&self.name).label(value).acquire().await?;
        Ok(Leadership { guard })
    }

    /// The current leader, if there is one.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        let show = proto::ShowRequest { name: self.name.clone(), stale: false };
        let call = async |mut server: crate::calls::Server, request| server.show(request).await;
        let lock = self.client.calls().call(show, call).await?;
        let leader = lock.holders.into_iter().next();
        Ok(leader.map(|holder| Leader { token: Token::new(holder.token), value: holder.label }))
    }

    /// Watches who leads.
    pub async fn observe(&self) -> Result<Observer, Error> {
        let scope = watch_request::Scope::Name(self.name.clone());
        let watch = Watch::begin(self.client.calls().clone(), scope).await?;
        Ok(Observer { election: self.clone(), watch, last_reported: None, look: true })
    }
}

/// A leadership, until it is resigned, dropped or lost: a [`Guard`] whose token is the term.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// # let client = Client::connect(&servers).await?;
/// let leadership = client.election("scheduler").campaign("10.0.0.7:9000").await?;
/// tokio::select! {
///     how = leadership.lost() => println!("another one may lead now ({how})"),
///     () = tokio::time::sleep(Duration::from_millis(10)) => leadership.resign().await?,
/// }
/// # Ok(()) }) }
/// ```
#[derive(Debug)]
pub struct Leadership {
    guard: Guard,
}

impl Leadership {
    /// Resigns, with a definite answer: see [`Guard::release`].
    pub async fn resign(self) -> Result<(), Error> {
        self.guard.release().await
    }
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

/// Watches who leads.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// # let client = Client::connect(&servers).await?;
/// let election = client.election("scheduler");
/// let mut observer = election.observe().await?;
/// assert_eq!(observer.next().await?, None);
/// let leadership = election.campaign("10.0.0.7:9000").await?;
/// let leader = observer.next().await?.expect("somebody leads");
/// assert_eq!(leader.token, leadership.token());
/// # Ok(()) }) }
/// ```
#[derive(Debug)]
pub struct Observer {
    election: Election,
    watch: Watch,
    /// What was returned last.
    last_reported: Option<Option<Leader>>,
    /// Whether something has happened since.
    look: bool,
}

impl Observer {
    /// The leader: the current one at first, and then whenever it changes; `None` while there is
    /// none.
    ///
    /// It is always the current leader, so one that led only briefly may be skipped. If a server
    /// fails, another one is asked; an error means that none answers, and the next call tries
    /// again.
    pub async fn next(&mut self) -> Result<Option<Leader>, Error> {
        loop {
            // What the watch reports may be older than the last read, so it only says when to read
            // again.
            if self.look {
                let now = self.election.leader().await?;
                self.look = false;
                if self.last_reported.as_ref() != Some(&now) {
                    self.last_reported = Some(now.clone());
                    return Ok(now);
                }
            }
            match self.watch.next().await? {
                Event::Granted { .. } | Event::Ended { held: true, .. } | Event::Missed => {
                    self.look = true;
                }
                _ => {}
            }
        }
    }
}
