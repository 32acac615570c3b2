//! A socket shared by two tasks: one serves it, the other waits for its end. A client that accepts
//! no data for too long is given up.

use crate::stream::Stream;
use holdfast_core::UserName;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long a client may accept nothing of what is written.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// What both tasks share.
pub(crate) struct SharedSocket {
    pub(crate) stream: Stream,
    write_is_stalled: AtomicBool,
}

impl SharedSocket {
    pub(crate) fn new(stream: Stream) -> Arc<Self> {
        Arc::new(Self { stream, write_is_stalled: AtomicBool::new(false) })
    }

    /// Whether a write is waiting because the client accepts no data.
    pub(crate) fn write_is_stalled(&self) -> bool {
        self.write_is_stalled.load(Ordering::Relaxed)
    }
}

/// The other end of a connection.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) address: Option<IpAddr>,
    shared: Arc<SharedSocket>,
    certified: Arc<OnceLock<Option<UserName>>>,
}

impl Peer {
    pub(crate) fn of(shared: Arc<SharedSocket>) -> Self {
        let address = shared.stream.peer_addr().ok().map(|address| address.ip().to_canonical());
        Self { address, shared, certified: Arc::default() }
    }

    /// The user that its certificate names. Requests arrive only after the handshake, so this does
    /// not change.
    pub(crate) fn user(&self) -> Option<UserName> {
        self.certified.get_or_init(|| self.shared.stream.certified_user()).clone()
    }
}

/// The end used by the task that serves the connection.
pub(crate) struct Socket {
    shared: Arc<SharedSocket>,
    /// Expires if the pending write makes no progress.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    pub(crate) fn new(shared: Arc<SharedSocket>) -> Self {
        Self { shared, stalled: None }
    }

    fn write(
        &mut self,
        context: &mut Context<'_>,
        attempt: impl Fn(&Stream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        while self.shared.stream.poll_write_ready(context)?.is_ready() {
            match attempt(&self.shared.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => {
                    self.stalled = None;
                    self.shared.write_is_stalled.store(false, Ordering::Relaxed);
                    return Poll::Ready(written);
                }
            }
        }
        self.shared.write_is_stalled.store(true, Ordering::Relaxed);
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(WRITE_TIMEOUT)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.shared.stream.poll_read_ready(context))?;
            match self.shared.stream.try_read_buf(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|_| ())),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream| stream.try_write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.stream.poll_sent(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.stream.poll_close(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream| stream.try_write_vectored(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
