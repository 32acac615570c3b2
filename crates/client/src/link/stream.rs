//! One stream to one server.

use super::orphans::{self, Found, Search};
use super::send::WINDOW;
use crate::calls::Server;
use holdfast_proto::v1::holdfast_client::HoldfastClient;
use holdfast_proto::v1::{self as proto, to_client, to_server};
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
}

/// What is to be done with a server before the session goes on there.
pub(super) struct Opening {
    pub(super) server: Endpoint,
    pub(super) password: Option<MetadataValue<Ascii>>,
    /// An earlier session that must surely be over first.
    pub(super) close: Option<proto::Attach>,
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
    pub(super) async fn open(self) -> Result<Opened, Status> {
        let Self { server, password, close, first, searches } = self;
        let channel: Channel = server
            .connect()
            .await
            .map_err(|error| Status::unavailable(format!("{}: {error}", server.uri())))?;
        let client = HoldfastClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        if let Some(attach) = close {
            self::close(&client, password.as_ref(), attach).await.map_err(try_elsewhere)?;
        }
        let (opened, stream) = begin(client.clone(), password.as_ref(), first).await?;
        // After the session was attached: what happens from now on comes over the stream.
        let found = orphans::search(&client, password.as_ref(), searches).await;
        Ok(Opened { opened, found: found.map_err(try_elsewhere)?, stream })
    }
}

async fn begin(
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

/// Ends a session that this client has lost, if the server does not know that yet.
async fn close(
    client: &Server,
    password: Option<&MetadataValue<Ascii>>,
    attach: proto::Attach,
) -> Result<(), Status> {
    let first = proto::ToServer { number: 0, what: Some(to_server::What::Attach(attach)) };
    let mut stream = match begin(client.clone(), password, first).await {
        Ok((_, stream)) => stream,
        Err(status) if is_over(&status) => return Ok(()),
        Err(status) => return Err(status),
    };
    let close = Some(to_server::What::Close(proto::CloseSession {}));
    let _ = stream.send(proto::ToServer { number: 1, what: close });
    while let Some(message) = stream.incoming.message().await? {
        if let Some(to_client::What::SessionEnded(_)) = message.what {
            return Ok(());
        }
    }
    Err(Status::unavailable("the server hung up"))
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
