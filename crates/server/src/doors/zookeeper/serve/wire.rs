//! A connection's socket: bytes in, frames out, both at once.

use crate::doors::memory::Share;
use crate::stream::Stream;
use holdfast_core::UserName;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::time::Instant;

/// The most bytes read at once.
const READ_BYTES: usize = 16 << 10;

/// While the client leaves more bytes than this unread, nothing is read from it, and its events
/// stay in its queue.
const OUT_BYTES: usize = 256 << 10;

/// The largest buffer that a connection keeps while it is empty.
const KEPT_BYTES: usize = 4 << 10;

/// A socket, with the bytes to be written to it.
pub(super) struct Wire {
    stream: Stream,
    out: Vec<u8>,
    /// How much of `out` has been written.
    written: usize,
    /// When the client last took some of `out`, or when `out` was last empty.
    taken_at: Instant,
    pub(super) share: Share,
}

/// What a socket is ready for.
pub(super) enum Ready {
    /// These bytes have arrived.
    Bytes(Vec<u8>),
    /// The other side has closed the connection.
    Closed,
    /// Something was written, or nothing could be done after all.
    Nothing,
}

impl Wire {
    /// The user that the client's certificate names.
    pub(super) fn certified_user(&self) -> Option<UserName> {
        self.stream.certified_user()
    }

    pub(super) fn new(stream: Stream, share: Share) -> Self {
        Self { stream, out: Vec::new(), written: 0, taken_at: Instant::now(), share }
    }

    pub(super) fn push(&mut self, frame: &[u8]) {
        if self.unsent() == 0 {
            self.taken_at = Instant::now();
        }
        self.out.extend_from_slice(frame);
    }

    fn unsent(&self) -> usize {
        self.out.len() - self.written
    }

    /// Since when the client has left something unread. `None` if nothing is waiting for it.
    pub(super) fn unread_since(&self) -> Option<Instant> {
        (self.unsent() > 0).then_some(self.taken_at)
    }

    /// Whether so much is waiting to be written that nothing should be added.
    pub(super) fn is_full(&self) -> bool {
        self.unsent() >= OUT_BYTES
    }

    /// Writes as much as the socket takes now.
    pub(super) fn write(&mut self) -> io::Result<()> {
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.stream.try_write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.written += count;
                    self.taken_at = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.written == self.out.len() {
            self.out.clear();
            self.out.shrink_to(KEPT_BYTES);
            self.written = 0;
        } else if self.written >= OUT_BYTES {
            self.out.drain(..self.written);
            self.written = 0;
        }
        Ok(())
    }

    /// Writes everything, closes the connection, and waits until the client has too: unread data
    /// would make the kernel reset the connection and discard the last frames.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        loop {
            self.write()?;
            if self.unsent() == 0 {
                break;
            }
            self.stream.writable().await?;
        }
        self.stream.shutdown().await?;
        let mut rest = [0; 1_024];
        while self.stream.read(&mut rest).await? > 0 {}
        Ok(())
    }

    /// Accounts for what this connection uses, besides `others_bytes`.
    pub(super) fn count(&mut self, others_bytes: usize) -> io::Result<()> {
        self.share.set(self.out.capacity().saturating_add(others_bytes))
    }

    /// Waits until bytes can be read, if `reads`, or written, if there are any. Cancel-safe.
    pub(super) async fn ready(&mut self, reads: bool) -> io::Result<Ready> {
        let interest = match (reads, self.unsent() > 0) {
            (true, true) => Interest::READABLE | Interest::WRITABLE,
            (true, false) => Interest::READABLE,
            (false, true) => Interest::WRITABLE,
            // Neither reading nor writing, but the end of the connection must be noticed. No client
            // sends urgent data.
            (false, false) => Interest::PRIORITY | Interest::ERROR,
        };
        let ready = self.stream.ready(interest).await?;
        if ready.is_writable() {
            self.write()?;
        }
        if !reads {
            let over = !interest.is_writable();
            return Ok(if over { Ready::Closed } else { Ready::Nothing });
        }
        let mut bytes = Vec::with_capacity(READ_BYTES);
        match self.stream.try_read_buf(&mut bytes) {
            Ok(0) => Ok(Ready::Closed),
            Ok(_) => Ok(Ready::Bytes(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Ready::Nothing),
            Err(error) => Err(error),
        }
    }
}
