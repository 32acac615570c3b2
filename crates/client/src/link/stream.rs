//! One stream to one server.

use super::send::WINDOW;
use holdfast_proto::v1::holdfast_client::HoldfastClient;
use holdfast_proto::v1::{self as proto, to_client};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

/// Messages that wait to be sent: all requests of a window, and some heartbeats.
const MESSAGES_MAX: usize = WINDOW as usize + 64;

/// The longest message from a server: how all tickets of a client stand, with what was left on
/// their locks.
const WORD_BYTES_MAX: usize = 64 << 20;

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

pub(super) async fn open(
    server: Endpoint,
    first: proto::ToServer,
    password: Option<MetadataValue<Ascii>>,
) -> Result<(proto::Opened, Stream), Status> {
    let channel: Channel = server
        .connect()
        .await
        .map_err(|error| Status::unavailable(format!("{}: {error}", server.uri())))?;
    let (out, messages) = mpsc::channel(MESSAGES_MAX);
    // There is room: nothing was sent before.
    let _ = out.try_send(first);
    let mut request = Request::new(ReceiverStream::new(messages));
    if let Some(password) = password {
        request.metadata_mut().insert("authorization", password);
    }
    let mut client = HoldfastClient::new(channel).max_decoding_message_size(WORD_BYTES_MAX);
    let mut incoming = client.session(request).await?.into_inner();
    match incoming.message().await?.and_then(|word| word.what) {
        Some(to_client::What::Opened(opened)) => Ok((opened, Stream { out, incoming })),
        _ => Err(Status::unavailable("the server began with something else")),
    }
}
