//! Elections, the fenced register and watches.

use super::{Guard, Thread};
use crate::error::Error;
use crate::{Event, Fence, Leader};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// An election: [`crate::Election`].
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server_blocking(|servers| {
/// # let client = holdfast_client::blocking::Client::connect(&servers)?;
/// let election = client.election("scheduler");
/// let mut observer = election.observe()?;
/// assert_eq!(observer.next()?, None);
/// let leadership = election.campaign("10.0.0.7:9000")?;
/// assert_eq!(observer.next()?.map(|leader| leader.token), Some(leadership.token()));
/// leadership.resign()?;
/// assert_eq!(election.leader()?, None);
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone)]
pub struct Election {
    pub(super) election: crate::Election,
    pub(super) thread: Arc<Thread>,
}

impl Election {
    /// Campaigns, and returns once elected.
    pub fn campaign(&self, value: impl Into<String>) -> Result<Leadership, Error> {
        let leadership = self.thread.wait_for(self.election.campaign(value))?;
        Ok(Leadership { leadership, thread: self.thread.clone() })
    }

    /// The current leader, if there is one.
    pub fn leader(&self) -> Result<Option<Leader>, Error> {
        self.thread.wait_for(self.election.leader())
    }

    /// Watches who leads.
    pub fn observe(&self) -> Result<Observer, Error> {
        let observer = self.thread.wait_for(self.election.observe())?;
        Ok(Observer { observer, thread: self.thread.clone() })
    }
}

/// A leadership, until it is resigned, dropped or lost: [`crate::Leadership`].
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server_blocking(|servers| {
/// # let client = holdfast_client::blocking::Client::connect(&servers)?;
/// let leadership = client.election("scheduler").campaign("10.0.0.7:9000")?;
/// println!("elected, in term {}", leadership.token());
/// leadership.resign()?;
/// # Ok(()) }) }
/// ```
#[derive(Debug)]
pub struct Leadership {
    leadership: crate::Leadership,
    // Dropped last: releasing needs it.
    thread: Arc<Thread>,
}

impl Leadership {
    /// Resigns, with a definite answer.
    pub fn resign(self) -> Result<(), Error> {
        let Self { leadership, thread } = self;
        thread.wait_for(leadership.resign())
    }
}

impl Deref for Leadership {
    type Target = crate::Guard;

    fn deref(&self) -> &crate::Guard {
        &self.leadership
    }
}

/// Watches who leads: [`crate::Observer`].
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server_blocking(|servers| {
/// # let client = holdfast_client::blocking::Client::connect(&servers)?;
/// let mut observer = client.election("scheduler").observe()?;
/// assert_eq!(observer.next()?, None);
/// # Ok(()) }) }
/// ```
#[derive(Debug)]
pub struct Observer {
    observer: crate::Observer,
    thread: Arc<Thread>,
}

impl Observer {
    /// Returns the current leader at first, and then waits for a change.
    #[expect(clippy::should_implement_trait, reason = "an error does not end it")]
    pub fn next(&mut self) -> Result<Option<Leader>, Error> {
        self.thread.wait_for(self.observer.next())
    }
}

/// One key of the fenced register: [`crate::Register`].
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server_blocking(|servers| {
/// # let client = holdfast_client::blocking::Client::connect(&servers)?;
/// let guard = client.lock("ledger").acquire()?;
/// let register = client.register("ledger");
/// register.raise(&guard)?;
/// register.put("balance 40", &guard)?;
/// assert_eq!(register.get()?.highest, guard.token());
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone)]
pub struct Register {
    pub(super) register: crate::Register,
    pub(super) thread: Arc<Thread>,
}

impl Register {
    /// Writes a value, unless a later holder's token has been seen.
    pub fn put(&self, value: impl AsRef<[u8]>, holder: &Guard) -> Result<Fence, Error> {
        self.thread.wait_for(self.register.put(value, holder))
    }

    /// Shows the token to the fence, and reads.
    pub fn raise(&self, holder: &Guard) -> Result<Fence, Error> {
        self.thread.wait_for(self.register.raise(holder))
    }

    /// Reads without a token: fine for display, not for decisions.
    pub fn get(&self) -> Result<Fence, Error> {
        self.thread.wait_for(self.register.get())
    }
}

/// A watch on locks: [`crate::Watch`].
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server_blocking(|servers| {
/// # let client = holdfast_client::blocking::Client::connect(&servers)?;
/// use holdfast_client::Event;
///
/// let mut watch = client.watch("seat-12A")?;
/// client.lock("seat-12A").acquire()?.release()?;
/// assert!(matches!(watch.next()?, Event::Granted { .. }));
/// assert!(matches!(watch.next()?, Event::Ended { .. }));
/// assert_eq!(watch.next_within(Duration::from_millis(10))?, None);
/// # Ok(()) }) }
/// ```
#[derive(Debug)]
pub struct Watch {
    pub(super) watch: crate::Watch,
    pub(super) thread: Arc<Thread>,
}

impl Watch {
    /// Waits for the next event.
    #[expect(clippy::should_implement_trait, reason = "an error does not end it")]
    pub fn next(&mut self) -> Result<Event, Error> {
        self.thread.wait_for(self.watch.next())
    }

    /// Waits for the next event, up to a limit; `None` if there was none.
    pub fn next_within(&mut self, at_most: Duration) -> Result<Option<Event>, Error> {
        self.thread.wait_for(async {
            match timeout(at_most, self.watch.next()).await {
                Ok(event) => event.map(Some),
                Err(_) => Ok(None),
            }
        })
    }
}
