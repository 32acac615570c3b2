//! One stream to one server.

use super::lost::Lost;
use super::orphans::{self, Found, Search};
use super::send::WINDOW;
use crate::calls::Server;
use crate::error;
use holdfast_proto::v1::holdfast_client::HoldfastClient;
use holdfast_proto::v1::{self as proto, to_client, to_server};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

/// Messages that wait to be sent: all requests of a window, and some heartbeats.
const MESSAGES_MAX: usize = WINDOW as usize + 64;

/// The longest message from a server: a part of how all tickets of a client stand, with what was
/// left on their locks.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

pub(super) struct Stream {
    out: mpsc::Sender<proto::ToServer>,
    pub(super) incoming: Streaming<proto::ToClient>,
}

impl Stream {
    /// False if the server does not take it.
    pub(super) fn send(&self, message: proto::ToServer) -> bool {
        self.out.try_send(message).is_ok()
    }

    /// Closes the session, and reads on until the server says that it is closed.
    pub(super) async fn close(mut self) -> Result<(), Status> {
        let close = Some(to_server::What::Close(proto::CloseSession {}));
        let _ = self.send(proto::ToServer { number: u64::MAX, what: close });
        while let Some(message) = self.incoming.message().await? {
            if let Some(to_client::What::SessionEnded(_)) = message.what {
                return Ok(());
            }
        }
        Err(Status::unavailable("the server hung up"))
    }
}

/// What is to be done with a server before the session goes on there.
pub(super) struct Opening {
    pub(super) server: Endpoint,
    pub(super) password: Option<MetadataValue<Ascii>>,
    /// An earlier session that must surely be over first.
    pub(super) lost: Option<Lost>,
    pub(super) first: proto::ToServer,
    pub(super) searches: Vec<Search>,
}

/// The session is open there.
pub(super) struct Opened {
    pub(super) opened: proto::Opened,
    pub(super) found: Vec<Found>,
    pub(super) stream: Stream,
}

impl Opening {
    /// Attaches the session.
    pub(super) async fn attach(self) -> Result<Opened, Status> {
        self.begin(None).await
    }

    /// Opens a session. Gives up before that if nobody wants it any more; afterwards it goes on.
    pub(super) async fn open(self, wanted: &AtomicBool) -> Result<Opened, Status> {
        self.begin(Some(wanted)).await
    }

    async fn begin(self, wanted: Option<&AtomicBool>) -> Result<Opened, Status> {
        let Self { server, password, lost, first, searches } = self;
        let opens = wanted.is_some();
        let channel: Channel = server.connect().await.map_err(|failed| {
            Status::unavailable(format!("{}: {}", server.uri(), error::with_causes(&failed)))
        })?;
        let client = HoldfastClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        if let Some(lost) = lost {
            lost.end(&client, password.as_ref()).await.map_err(try_elsewhere)?;
        }
        if wanted.is_some_and(|wanted| !wanted.load(Ordering::Acquire)) {
            return Err(Status::cancelled("nobody wants it any more"));
        }
        let (opened, stream) = begin(client.clone(), password.as_ref(), first).await?;
        // After the session was attached: what happens from now on comes over the stream.
        match orphans::search(&client, password.as_ref(), searches).await {
            Ok(found) => Ok(Opened { opened, found, stream }),
            Err(status) => {
                if opens {
                    // Nobody is to have it. If this fails too, it ends with its TTL.
                    let _ = stream.close().await;
                }
                Err(try_elsewhere(status))
            }
        }
    }
}

pub(super) async fn begin(
    mut client: Server,
    password: Option<&MetadataValue<Ascii>>,
    first: proto::ToServer,
) -> Result<(proto::Opened, Stream), Status> {
    let (out, messages) = mpsc::channel(MESSAGES_MAX);
    // There is room: nothing was sent before.
    let _ = out.try_send(first);
    let mut request = Request::new(ReceiverStream::new(messages));
    if let Some(password) = password {
        request.metadata_mut().insert("authorization", password.clone());
    }
    let mut incoming = client.session(request).await?.into_inner();
    match incoming.message().await?.and_then(|word| word.what) {
        Some(to_client::What::Opened(opened)) => Ok((opened, Stream { out, incoming })),
        _ => Err(Status::unavailable("the server began with something else")),
    }
}

/// Whether an attach was refused because its session is over.
pub(super) fn is_over(status: &Status) -> bool {
    matches!(status.code(), Code::FailedPrecondition | Code::PermissionDenied)
}

/// What goes wrong on the way says nothing about the session that is wanted, unless the server does
/// not talk to this client at all.
fn try_elsewhere(status: Status) -> Status {
    match status.code() {
        Code::Unauthenticated => status,
        _ => Status::unavailable(status.message()),
    }
}
