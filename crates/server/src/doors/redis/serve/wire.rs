//! A connection's socket: bytes in, replies and messages out.

use crate::doors::memory::Share;
use crate::engine::{Engine, Subscriber};
use crate::stream::Stream;
use bytes::BytesMut;
use holdfast_core::UserName;
use holdfast_gateway::{Published, SessionEvent};
use holdfast_redis::client::Client;
use holdfast_redis::resp::{Reply, encode};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::time::timeout;

/// How much is read at once: normally, and from a client that sends more.
const READ_BYTES: usize = 4 << 10;
const READ_BYTES_MAX: usize = 64 << 10;

/// Replies are written once this much has gathered, even if more are to come.
pub(super) const OUT_BYTES: usize = 64 << 10;

/// Bytes that are read ahead while a command runs.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// Bytes that a client may send behind a waiting command: as much as one request may have.
const BEHIND_WAIT_BYTES_MAX: usize = 1 << 20;

/// Messages that may be queued for one client, and their bytes.
const MESSAGES_MAX: usize = 16_384;
const MESSAGES_BYTES_MAX: usize = 8 << 20;

/// How long a client may leave data unread.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// A socket with its buffers.
pub(super) struct Wire {
    stream: Stream,
    pub(super) buffer: BytesMut,
    pub(super) out: Vec<u8>,
    /// How much of `out` has been written.
    written: usize,
    subscriber: Option<Subscriber>,
    /// Whether the last read filled the buffer.
    much: bool,
    pub(super) share: Share,
    /// Bytes used for the client in addition to the buffers.
    pub(super) others_bytes: usize,
}

/// Something that happened on a socket.
pub(super) enum Event {
    /// Bytes have arrived.
    Bytes,
    /// A message was published that the client may be subscribed to.
    Published(Arc<Published>),
    /// The other side has closed the connection.
    Closed,
}

impl Wire {
    /// The user that the client's certificate names.
    pub(super) fn certified_user(&self) -> Option<UserName> {
        self.stream.certified_user()
    }

    pub(super) fn new(stream: Stream, share: Share) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            out: Vec::new(),
            written: 0,
            subscriber: None,
            much: false,
            share,
            others_bytes: 0,
        }
    }

    /// Frees unused buffers, then accounts for what this connection uses.
    pub(super) fn count(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() && self.buffer.capacity() > READ_BYTES {
            self.buffer = BytesMut::new();
        }
        if self.out.is_empty() && self.out.capacity() > READ_BYTES {
            self.out = Vec::new();
        }
        let buffers = self.buffer.capacity().saturating_add(self.out.capacity());
        self.share.set(buffers.saturating_add(self.others_bytes))
    }

    /// The receiver for this connection's messages, and for the notice that it must be closed.
    pub(super) fn subscriber(&mut self, engine: &Engine) -> &Subscriber {
        let new = || engine.subscriber(MESSAGES_MAX, MESSAGES_BYTES_MAX);
        self.subscriber.get_or_insert_with(new)
    }

    /// Whether the connection must be closed: it missed messages, or its lock was taken over.
    pub(super) fn must_end(&self) -> bool {
        self.subscriber.as_ref().is_some_and(|subscriber| subscriber.sink().has_overflowed())
    }

    pub(super) fn push_reply(&mut self, reply: &Reply, client: &Client) {
        encode(reply, client.protocol, &mut self.out);
    }

    /// Sends the reason for closing the connection, if the socket takes it right away.
    pub(super) fn close_with(&mut self, reply: &Reply, client: &Client) {
        if self.written >= self.out.len() {
            let mut last = Vec::new();
            encode(reply, client.protocol, &mut last);
            let _ = self.stream.try_write(&last);
        }
    }

    fn read(&mut self) -> io::Result<Option<Event>> {
        let room = if self.much { READ_BYTES_MAX } else { READ_BYTES };
        self.buffer.reserve(room);
        match self.stream.try_read_buf(&mut self.buffer) {
            Ok(0) => Ok(Some(Event::Closed)),
            Ok(count) => {
                self.much = count >= room;
                self.count()?;
                Ok(Some(Event::Bytes))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The next event on the connection.
    pub(super) async fn next(&mut self) -> io::Result<Event> {
        loop {
            if self.must_end() {
                return Err(too_slow());
            }
            let published = tokio::select! {
                ready = self.stream.readable() => {
                    ready?;
                    None
                }
                published = next_message(&mut self.subscriber) => Some(published?),
            };
            let event = match published {
                Some(published) => Some(Event::Published(published)),
                None => self.read()?,
            };
            if let Some(event) = event {
                return Ok(event);
            }
        }
    }

    /// Writes everything that has gathered. Fails if the client does not read it.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.stream.try_write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                // Counted immediately: this future may be dropped while it waits.
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.count()?;
                    tokio::select! {
                        ready = timeout(WRITE_TIMEOUT, self.stream.writable()) => ready??,
                        () = overflows(&self.subscriber) => return Err(too_slow()),
                    }
                }
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }

    /// Writes the client's copies of a message, and of those queued behind it.
    pub(super) async fn pass_on(
        &mut self,
        published: Arc<Published>,
        client: &Client,
    ) -> io::Result<()> {
        let mut next = Some(published);
        while let Some(published) = next {
            let (channel, message) = (&published.channel, &published.message);
            for reply in client.deliver(channel.as_bytes(), message.as_bytes()) {
                self.push_reply(&reply, client);
            }
            if self.out.len() >= OUT_BYTES {
                self.flush().await?;
            }
            next = match self.subscriber.as_mut().and_then(Subscriber::try_next) {
                Some(SessionEvent::Published(published)) => Some(published),
                _ => None,
            };
        }
        self.flush().await
    }

    /// Reads ahead while a command runs; returns when the other side has closed the connection.
    /// Messages wait until the command is done.
    pub(super) async fn hangs_up(&mut self) -> io::Error {
        loop {
            if self.buffer.len() > AHEAD_BYTES_MAX {
                // The rest is read when there is room. Nobody sends urgent data: this returns at
                // the end of the stream, or on a socket error.
                return match self.stream.ready(Interest::PRIORITY | Interest::ERROR).await {
                    Ok(_) => io::ErrorKind::UnexpectedEof.into(),
                    Err(error) => error,
                };
            }
            let read = match self.stream.readable().await {
                Ok(()) => self.read(),
                Err(error) => return error,
            };
            match read {
                Ok(Some(Event::Closed)) => return io::ErrorKind::UnexpectedEof.into(),
                Ok(_) => {}
                Err(error) => return error,
            }
        }
    }

    /// Serves the connection while a command waits; returns when it has ended or must be closed.
    /// Everything is read, because the end of a stream is only seen by reading up to it.
    pub(super) async fn attend(&mut self, client: &Client) -> io::Error {
        loop {
            if self.buffer.len() > BEHIND_WAIT_BYTES_MAX {
                return io::Error::new(
                    io::ErrorKind::InvalidData,
                    "it sent too much behind a command that waits",
                );
            }
            match self.next().await {
                Ok(Event::Bytes) => {}
                Ok(Event::Published(published)) => {
                    if let Err(error) = self.pass_on(published, client).await {
                        return error;
                    }
                }
                Ok(Event::Closed) => return io::ErrorKind::UnexpectedEof.into(),
                Err(error) => return error,
            }
        }
    }
}

fn too_slow() -> io::Error {
    io::Error::other(
        "it does not read its messages as fast as they come, or this node missed some, or another \
         connection took over its lock",
    )
}

/// The next message; pending forever if there is no subscriber.
async fn next_message(subscriber: &mut Option<Subscriber>) -> io::Result<Arc<Published>> {
    let Some(subscriber) = subscriber else { return std::future::pending().await };
    loop {
        match subscriber.next().await {
            Ok(SessionEvent::Published(published)) => return Ok(published),
            // It is subscribed to nothing else.
            Ok(_) => {}
            Err(_) => return Err(too_slow()),
        }
    }
}

async fn overflows(subscriber: &Option<Subscriber>) {
    match subscriber {
        Some(subscriber) => subscriber.sink().overflowed().await,
        None => std::future::pending().await,
    }
}
