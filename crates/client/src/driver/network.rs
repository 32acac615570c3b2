//! Connections to servers, with their streams and queries.

use crate::calls::Server;
use crate::session::{
    ConnectionId, Failure, FailureKind, Input, Query, QueryId, Reply, StreamId, WINDOW, WatchId,
    WatchUpdate,
};
use crate::status::{failure, unreachable};
use holdfast_proto::v1::holdfast_client::HoldfastClient;
use holdfast_proto::v1::{ShowRequest, ToClient, ToServer};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_stream::Stream as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

/// Capacity of the send queue, in messages: all requests of a window, and some heartbeats.
const MESSAGES_MAX: usize = WINDOW as usize + 64;

/// The longest message from a server: part of the status of all tickets of a client, with the notes
/// on their locks.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Messages that are read in one turn.
const MESSAGES_AT_ONCE: usize = 256;

/// The result of something that ran in a task of its own.
#[allow(clippy::large_enum_variant, reason = "they are used up at once")]
pub(super) enum Event {
    Connected(ConnectionId, Result<Channel, Failure>),
    Opened(StreamId, Result<Streaming<ToClient>, Status>),
    Replied(QueryId, Result<Reply, Status>),
    Watched(WatchId, WatchUpdate),
}

pub(super) struct Network {
    servers: Vec<Endpoint>,
    authorization: Option<MetadataValue<Ascii>>,
    events: mpsc::Sender<Event>,
    connections: Vec<Connection>,
    streams: Vec<Stream>,
}

struct Connection {
    id: ConnectionId,
    /// `None` until it is connected.
    client: Option<Server>,
    tasks: Vec<AbortHandle>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

struct Stream {
    id: StreamId,
    connection: ConnectionId,
    out: mpsc::Sender<ToServer>,
    /// `None` until the server has accepted it.
    incoming: Option<Streaming<ToClient>>,
}

impl Network {
    pub(super) fn new(
        servers: Vec<Endpoint>,
        authorization: Option<MetadataValue<Ascii>>,
        events: mpsc::Sender<Event>,
    ) -> Self {
        Self { servers, authorization, events, connections: Vec::new(), streams: Vec::new() }
    }

    pub(super) fn connect(&mut self, id: ConnectionId, server: usize) {
        let Some(server) = self.servers.get(server).cloned() else { return };
        let events = self.events.clone();
        let task = tokio::spawn(async move {
            let connected = server.connect().await;
            let connected =
                connected.map_err(|error| unreachable(&server.uri().to_string(), &error));
            let _ = events.send(Event::Connected(id, connected)).await;
        });
        let tasks = vec![task.abort_handle()];
        self.connections.push(Connection { id, client: None, tasks });
    }

    pub(super) fn disconnect(&mut self, id: ConnectionId) {
        self.streams.retain(|stream| stream.connection != id);
        self.connections.retain(|connection| connection.id != id);
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        request
    }

    fn connection(&mut self, id: ConnectionId) -> Option<(&mut Connection, Server)> {
        let mut connections = self.connections.iter_mut();
        let connection = connections.find(|connection| connection.id == id)?;
        let client = connection.client.clone()?;
        Some((connection, client))
    }

    pub(super) fn open_stream(&mut self, id: ConnectionId, stream: StreamId, first: ToServer) {
        let (out, messages) = mpsc::channel(MESSAGES_MAX);
        // The queue has room: nothing was sent before.
        let _ = out.try_send(first);
        let (events, request) = (self.events.clone(), self.request(ReceiverStream::new(messages)));
        let Some((connection, mut client)) = self.connection(id) else { return };
        let task = tokio::spawn(async move {
            let opened = client.session(request).await.map(tonic::Response::into_inner);
            let _ = events.send(Event::Opened(stream, opened)).await;
        });
        connection.tasks.push(task.abort_handle());
        self.streams.push(Stream { id: stream, connection: id, out, incoming: None });
    }

    /// Sends a message; the stream is dropped if its queue is full.
    pub(super) fn send(&self, stream: StreamId, message: ToServer) -> Option<Input> {
        let found = self.streams.iter().find(|known| known.id == stream)?;
        if found.out.try_send(message).is_ok() {
            return None;
        }
        let message = "the server takes no more requests".to_owned();
        let failure = Failure { kind: FailureKind::TryElsewhere, message };
        Some(Input::StreamEnded(stream, Some(failure)))
    }

    pub(super) fn query(&mut self, id: ConnectionId, query: QueryId, what: Query) {
        let (events, metadata) = (self.events.clone(), self.request(()).into_parts().0);
        let Some((connection, mut client)) = self.connection(id) else { return };
        let task = tokio::spawn(async move {
            let (metadata, extensions) = (metadata, tonic::Extensions::default());
            let reply = match what {
                Query::Show(name) => {
                    let show = ShowRequest { name, stale: false };
                    let shown = client.show(Request::from_parts(metadata, extensions, show)).await;
                    shown.map(|lock| Reply::Lock(lock.into_inner()))
                }
                Query::Cancel(ticket) => {
                    let cancel = Request::from_parts(metadata, extensions, ticket);
                    client.cancel(cancel).await.map(|_| Reply::Done)
                }
                Query::Release(ticket) => {
                    let release = Request::from_parts(metadata, extensions, ticket);
                    client.release(release).await.map(|_| Reply::Done)
                }
            };
            let _ = events.send(Event::Replied(query, reply)).await;
        });
        connection.tasks.push(task.abort_handle());
    }

    /// Converts an event into an input for the session.
    pub(super) fn take(&mut self, event: Event) -> Option<Input> {
        match event {
            Event::Connected(id, Ok(channel)) => {
                let connection = self.connections.iter_mut().find(|known| known.id == id)?;
                let client = HoldfastClient::new(channel);
                connection.client = Some(client.max_decoding_message_size(MESSAGE_BYTES_MAX));
                Some(Input::Connected(id))
            }
            Event::Connected(id, Err(failure)) => Some(Input::NotConnected(id, failure)),
            Event::Opened(id, Ok(incoming)) => {
                let stream = self.streams.iter_mut().find(|known| known.id == id)?;
                stream.incoming = Some(incoming);
                None
            }
            Event::Opened(id, Err(status)) => Some(self.ended(id, Some(&status))),
            Event::Replied(query, reply) => {
                Some(Input::Replied(query, reply.map_err(|status| failure(&status))))
            }
            Event::Watched(watch, news) => Some(Input::Watched(watch, news)),
        }
    }

    fn ended(&mut self, id: StreamId, status: Option<&Status>) -> Input {
        self.streams.retain(|stream| stream.id != id);
        Input::StreamEnded(id, status.map(failure))
    }

    /// Reads the messages that have arrived.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, inputs: &mut Vec<Input>) {
        let mut ended = None;
        for stream in &mut self.streams {
            let Some(incoming) = &mut stream.incoming else { continue };
            for _ in 0..MESSAGES_AT_ONCE {
                match Pin::new(&mut *incoming).poll_next(context) {
                    Poll::Ready(Some(Ok(message))) => {
                        inputs.push(Input::Received(stream.id, message));
                    }
                    Poll::Ready(Some(Err(status))) => ended = Some((stream.id, Some(status))),
                    Poll::Ready(None) => ended = Some((stream.id, None)),
                    Poll::Pending => break,
                }
                if ended.is_some() {
                    break;
                }
            }
            // The others are polled again soon.
            if ended.is_some() {
                break;
            }
        }
        if let Some((id, status)) = ended {
            let input = self.ended(id, status.as_ref());
            inputs.push(input);
        }
    }
}
