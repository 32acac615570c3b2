//! A connection whose first bytes must come soon: until then it is not known what it speaks, and
//! hyper would wait for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// By the 24th byte it is known whether a connection speaks HTTP/1 or HTTP/2.
const PREFACE_BYTES: usize = 24;

/// Such a connection.
pub(super) struct Begins {
    stream: TcpStream,
    deadline: Option<Pin<Box<Sleep>>>,
    heard: usize,
}

impl Begins {
    pub(super) fn within(patience: Duration, stream: TcpStream) -> Self {
        Self { stream, deadline: Some(Box::pin(sleep(patience))), heard: 0 }
    }
}

impl AsyncRead for Begins {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        let Some(deadline) = &mut self.deadline else { return read };
        if read.is_pending() {
            ready!(deadline.as_mut().poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.heard += into.filled().len() - before;
        if self.heard >= PREFACE_BYTES {
            self.deadline = None;
        }
        read
    }
}

impl AsyncWrite for Begins {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
