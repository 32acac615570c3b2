//! What happens to locks, as it happens.

use crate::client::Client;
use crate::error::{Error, How};
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, watch_event, watch_request};
use tonic::Streaming;

/// Something that happened to a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A ticket is being served.
    Granted {
        /// The names that it holds.
        names: Vec<Bytes>,
        /// Its fencing token.
        token: u64,
        /// What the holder calls itself.
        label: Option<Bytes>,
    },
    /// A ticket is over.
    Ended {
        /// The names that it stood for.
        names: Vec<Bytes>,
        /// Its number.
        token: u64,
        /// How it ended.
        how: How,
        /// Whether it had been served.
        held: bool,
    },
    /// Something else: a note, a revocation, a lock-delay, a recovery.
    Other,
}

/// A watch that stands: from now on nothing is missed until it ends.
#[derive(Debug)]
pub struct Watch {
    events: Streaming<proto::WatchEvent>,
}

impl Watch {
    pub(crate) async fn begin(client: &Client, scope: watch_request::Scope) -> Result<Self, Error> {
        let request = proto::WatchRequest { scope: Some(scope) };
        let call = async |mut server: crate::calls::Server, mut request: tonic::Request<_>| {
            // A watch lasts as long as it is wanted.
            request.metadata_mut().remove("grpc-timeout");
            server.watch(request).await
        };
        let mut watch = Self { events: client.calls().call(request, call).await? };
        // The first word says that the watch stands.
        watch.next_word().await?;
        Ok(watch)
    }

    /// What happens next. An error means that something may have been missed: look at the lock,
    /// and watch anew.
    pub async fn next(&mut self) -> Result<Event, Error> {
        Ok(match self.next_word().await? {
            watch_event::What::Granted(grant) => {
                Event::Granted { names: grant.names, token: grant.token, label: grant.label }
            }
            watch_event::What::Ended(ended) => Event::Ended {
                names: ended.names,
                token: ended.token,
                how: How::of(ended.how),
                held: ended.held,
            },
            _ => Event::Other,
        })
    }

    async fn next_word(&mut self) -> Result<watch_event::What, Error> {
        let word = self.events.message().await;
        let word = word.map_err(|status| Error::Unreachable(status.message().to_owned()))?;
        let ended = || Error::Unreachable("the watch has ended".to_owned());
        word.and_then(|word| word.what).ok_or_else(ended)
    }
}
