//! Watches: events of locks as they happen.

use crate::calls::{Calls, Server};
use crate::error::{EndReason, Error};
use crate::guard_state::Revocation;
use crate::held_ticket::Ending;
use crate::token::Token;
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, watch_event, watch_request};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tonic::Streaming;

/// Something that happened to a lock.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// # let client = Client::connect(&servers).await?;
/// use holdfast_client::{Event, EndReason};
///
/// let mut watch = client.watch("seat-12A").await?;
/// client.lock("seat-12A").acquire().await?.release().await?;
/// assert!(matches!(watch.next().await?, Event::Granted { .. }));
/// assert!(matches!(watch.next().await?, Event::Ended { how: EndReason::Released, held: true, .. }));
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A ticket was served.
    Granted {
        /// Its names.
        names: Vec<Bytes>,
        /// Its fencing token.
        token: Token,
        /// The holder's label.
        label: Option<Bytes>,
        /// Whether it is shared with other readers.
        shared: bool,
        /// How long it waited in line.
        waited: Duration,
    },
    /// A ticket is over.
    Ended {
        /// Its names.
        names: Vec<Bytes>,
        /// Its number.
        token: Token,
        /// How it ended.
        how: EndReason,
        /// Whether it had been served.
        held: bool,
        /// Its label.
        label: Option<Bytes>,
        /// Its note.
        note: Option<Bytes>,
    },
    /// A holder changed its note.
    Noted {
        /// Its names.
        names: Vec<Bytes>,
        /// The holder's token.
        token: Token,
        /// The note; `None` if it was removed.
        note: Option<Bytes>,
    },
    /// A holder was asked to release.
    RevocationAsked {
        /// The lock.
        name: Bytes,
        /// The holder's token.
        token: Token,
        /// The request, with who made it and why.
        asked: Revocation,
    },
    /// A holder has recovered the work of a dead one.
    Recovered {
        /// The lock.
        name: Bytes,
        /// The holder's token.
        token: Token,
        /// The death that it recovered from.
        death: Option<Ending>,
    },
    /// A writer became a reader, with the same token.
    Downgraded {
        /// Its names.
        names: Vec<Bytes>,
        /// Its token.
        token: Token,
    },
    /// A holder died, and its lock-delay has started: nobody is served until it is over.
    Delayed {
        /// The lock.
        name: Bytes,
        /// How long the delay is.
        pause: Duration,
        /// The death that caused it.
        after: Option<Ending>,
    },
    /// The watch had to be restarted, perhaps on another server: something may have been missed.
    /// Check the locks that matter.
    Missed,
    /// An event of a newer server that this client does not know.
    Unknown,
}

/// An active watch: returns every event from now on, or reports that some were missed.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// # let client = Client::connect(&servers).await?;
/// use holdfast_client::Event;
///
/// let mut watch = client.watch_prefix("shop/").await?;
/// let guard = client.lock("shop/seat-12A").label("till 3").acquire().await?;
/// match watch.next().await? {
///     Event::Granted { token, label, .. } => {
///         assert_eq!((token, label.as_deref()), (guard.token(), Some(&b"till 3"[..])));
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok(()) }) }
/// ```
#[derive(Debug)]
pub struct Watch {
    calls: Arc<Calls>,
    scope: watch_request::Scope,
    /// `None` after it has ended: it is restarted.
    events: Option<Streaming<proto::WatchEvent>>,
}

impl Watch {
    pub(crate) async fn begin(
        calls: Arc<Calls>,
        scope: watch_request::Scope,
    ) -> Result<Self, Error> {
        let events = Some(open_watch(&calls, &scope).await?);
        Ok(Self { calls, scope, events })
    }

    /// The next event. If the server fails, the watch continues on another one and returns
    /// [`Event::Missed`]. An error means that no server answered; the next call tries again.
    pub async fn next(&mut self) -> Result<Event, Error> {
        if let Some(events) = &mut self.events {
            if let Ok(Some(event)) = events.message().await {
                return Ok(event.what.map_or(Event::Unknown, Event::of));
            }
            self.events = None;
        }
        self.events = Some(open_watch(&self.calls, &self.scope).await?);
        Ok(Event::Missed)
    }
}

/// Opens a watch, and returns once the server has confirmed it. Boxed, like the connection of
/// [`crate::Client`].
fn open_watch<'a>(
    calls: &'a Calls,
    scope: &watch_request::Scope,
) -> Pin<Box<dyn Future<Output = Result<Streaming<proto::WatchEvent>, Error>> + Send + 'a>> {
    let request = proto::WatchRequest { scope: Some(scope.clone()) };
    let call = async |mut server: Server, request: tonic::Request<_>| {
        let mut response = server.watch(request).await?;
        match response.get_mut().message().await? {
            Some(_) => Ok(response),
            None => Err(tonic::Status::unavailable("the watch has ended")),
        }
    };
    Box::pin(calls.call(request, call))
}

impl Event {
    fn of(what: watch_event::What) -> Self {
        match what {
            watch_event::What::Watching(_) => Self::Unknown,
            watch_event::What::Granted(grant) => Self::Granted {
                shared: grant.mode() == proto::Mode::Shared,
                waited: Duration::from_millis(grant.waited_ms),
                names: grant.names,
                token: Token::new(grant.token),
                label: grant.label,
            },
            watch_event::What::Ended(ended) => Self::Ended {
                names: ended.names,
                token: Token::new(ended.token),
                how: EndReason::of(ended.how),
                held: ended.held,
                label: ended.label,
                note: ended.note,
            },
            watch_event::What::Noted(noted) => {
                Self::Noted { names: noted.names, token: Token::new(noted.token), note: noted.note }
            }
            watch_event::What::Revocation(asked) => Self::RevocationAsked {
                name: asked.name,
                token: Token::new(asked.token),
                asked: Revocation {
                    by: asked.by,
                    reason: asked.reason,
                    within: Duration::from_millis(asked.within_ms),
                    force: asked.force,
                },
            },
            watch_event::What::Recovered(recovery) => Self::Recovered {
                death: recovery.death.map(|death| Ending::of(&recovery.name, &death)),
                name: recovery.name,
                token: Token::new(recovery.token),
            },
            watch_event::What::Downgraded(down) => {
                Self::Downgraded { names: down.names, token: Token::new(down.token) }
            }
            watch_event::What::Delayed(delayed) => Self::Delayed {
                after: delayed.after.map(|death| Ending::of(&delayed.name, &death)),
                name: delayed.name,
                pause: Duration::from_millis(delayed.for_ms),
            },
        }
    }
}
