//! A TCP connection that may be encrypted, with the non-blocking interface of a `TcpStream`.
//!
//! The doors and the peers use a [`Stream`] as they would use the socket itself: they wait until it
//! is ready, then try to read or write. The TLS handshake takes place during the first reads and
//! writes, so every timeout on a connection covers it, too.

use bytes::BufMut;
use holdfast_core::{SHARED_USER, UserName};
use rustix::io::ioctl_fionread;
use rustix::net::{Shutdown, shutdown};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::io::{self, BufRead, ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::TcpStream;

/// How many bytes of plaintext a connection buffers before its handshake is done, and how many it
/// encrypts at once.
const BUFFER_BYTES: usize = 64 << 10;

/// The first byte of a TLS connection: the type of a handshake record.
const HANDSHAKE_RECORD: u8 = 0x16;

/// A connection, encrypted or not.
pub(crate) struct Stream {
    tcp: TcpStream,
    tls: Option<Box<Mutex<Tls>>>,
}

/// The encrypted side of a connection.
struct Tls {
    connection: Connection,
    /// Sent in the clear to a client that does not speak TLS. `None` once the first byte has
    /// arrived, or if nothing is to be sent.
    plaintext_reply: Option<&'static [u8]>,
}

impl From<TcpStream> for Stream {
    /// A connection without TLS.
    fn from(tcp: TcpStream) -> Self {
        Self { tcp, tls: None }
    }
}

impl Stream {
    /// An accepted connection with TLS. A client that does not speak it is sent `plaintext_reply`.
    pub(crate) fn accepted(
        tcp: TcpStream,
        config: Arc<ServerConfig>,
        plaintext_reply: &'static [u8],
    ) -> io::Result<Self> {
        let connection = ServerConnection::new(config).map_err(io::Error::other)?;
        Ok(Self::encrypted(tcp, connection.into(), Some(plaintext_reply)))
    }

    /// A connection with TLS to the server of this name.
    pub(crate) fn dialed(
        tcp: TcpStream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        Ok(Self::encrypted(tcp, connection.into(), None))
    }

    fn encrypted(
        tcp: TcpStream,
        mut connection: Connection,
        plaintext_reply: Option<&'static [u8]>,
    ) -> Self {
        connection.set_buffer_limit(Some(BUFFER_BYTES));
        Self { tcp, tls: Some(Box::new(Mutex::new(Tls { connection, plaintext_reply }))) }
    }

    fn tls(&self) -> Option<MutexGuard<'_, Tls>> {
        // No code panics while holding the lock.
        self.tls.as_ref().map(|tls| tls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.peer_addr()
    }

    /// The user that the client's certificate names, once the handshake is done: its common name.
    /// Only certificates that the configured authority has signed get this far.
    pub(crate) fn certified_user(&self) -> Option<UserName> {
        let tls = self.tls()?;
        let certificate = tls.connection.peer_certificates()?.first()?;
        let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let name = certificate.subject().iter_common_name().next()?.as_str().ok()?;
        // Only the password makes a client that user.
        UserName::parse(name).ok().filter(|name| name.as_str() != SHARED_USER)
    }

    /// How many bytes have arrived in the socket and have not been read. Bytes that were decrypted
    /// and have not been read are not included.
    pub(crate) fn unread(&self) -> u64 {
        ioctl_fionread(&self.tcp).unwrap_or_default()
    }

    /// Whether data that was accepted by a write is still waiting to be sent. It is sent while a
    /// caller waits for this stream to be ready.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls().is_some_and(|tls| tls.connection.wants_write())
    }

    /// What the socket must be ready for before a read can make progress. `None` if there is data
    /// to read already.
    fn read_interest(&self) -> Option<Interest> {
        let Some(mut tls) = self.tls() else { return Some(Interest::READABLE) };
        if tls.has_plaintext() {
            return None;
        }
        Some(tls.add_unsent(Interest::READABLE))
    }

    /// What the socket must be ready for before a write can make progress.
    fn write_interest(&self) -> Interest {
        match self.tls() {
            Some(tls) if tls.connection.is_handshaking() => tls.add_unsent(Interest::READABLE),
            _ => Interest::WRITABLE,
        }
    }

    /// Sends what is waiting to be sent, and continues the handshake.
    fn advance(&self, ready: Ready) -> io::Result<()> {
        let Some(mut tls) = self.tls() else { return Ok(()) };
        if ready.is_writable() {
            tls.send(&self.tcp)?;
        }
        while ready.is_readable() && tls.connection.is_handshaking() {
            if !tls.receive(&self.tcp)? {
                break;
            }
        }
        Ok(())
    }

    /// Resolves when there may be something to read. Cancel-safe.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        while let Some(interest) = self.read_interest() {
            let ready = self.tcp.ready(interest).await?;
            if ready.is_readable() {
                return Ok(());
            }
            self.advance(ready)?;
        }
        Ok(())
    }

    /// Resolves when something can be written. Cancel-safe.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        loop {
            let interest = self.write_interest();
            let ready = self.tcp.ready(interest).await?;
            self.advance(ready)?;
            if interest == Interest::WRITABLE {
                return Ok(());
            }
        }
    }

    /// Like [`TcpStream::ready`]. Being readable or writable may only mean that TLS can make
    /// progress. Cancel-safe.
    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        loop {
            if interest.is_readable() && self.read_interest().is_none() {
                return Ok(Ready::READABLE);
            }
            let wanted = self.tls().map_or(interest, |tls| tls.add_unsent(interest));
            let mut ready = self.tcp.ready(wanted).await?;
            self.advance(ready)?;
            if !interest.is_writable() {
                ready = ready - (Ready::WRITABLE | Ready::WRITE_CLOSED);
            }
            if !ready.is_empty() {
                return Ok(ready);
            }
        }
    }

    pub(crate) fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(interest) = self.read_interest() else { return Poll::Ready(Ok(())) };
        if interest.is_writable() {
            while self.tcp.poll_write_ready(context)?.is_ready() {
                self.advance(Ready::WRITABLE)?;
                if !self.has_unsent() {
                    break;
                }
            }
        }
        self.tcp.poll_read_ready(context)
    }

    pub(crate) fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.write_interest() != Interest::WRITABLE {
            if self.has_unsent() {
                ready!(self.tcp.poll_write_ready(context))?;
                self.advance(Ready::WRITABLE)?;
            } else {
                ready!(self.tcp.poll_read_ready(context))?;
                self.advance(Ready::READABLE)?;
            }
        }
        self.tcp.poll_write_ready(context)
    }

    /// Like [`TcpStream::try_read`].
    pub(crate) fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut into = into;
        self.try_read_buf(&mut into)
    }

    /// Like [`TcpStream::try_read_buf`].
    pub(crate) fn try_read_buf(&self, into: &mut impl BufMut) -> io::Result<usize> {
        match self.tls() {
            None => self.tcp.try_read_buf(into),
            Some(mut tls) => tls.read(&self.tcp, into),
        }
    }

    /// Like [`TcpStream::try_write`].
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.tls() {
            None => self.tcp.try_write(bytes),
            Some(mut tls) => tls.write(&self.tcp, |writer| writer.write(bytes)),
        }
    }

    /// Like [`TcpStream::try_write_vectored`].
    pub(crate) fn try_write_vectored(&self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.tls() {
            None => self.tcp.try_write_vectored(bytes),
            Some(mut tls) => tls.write(&self.tcp, |writer| writer.write_vectored(bytes)),
        }
    }

    /// Resolves when everything that was written is sent.
    pub(crate) fn poll_sent(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.has_unsent() {
            ready!(self.tcp.poll_write_ready(context))?;
            self.advance(Ready::WRITABLE)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Closes the sending half, once everything that was written is sent.
    pub(crate) fn poll_close(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(mut tls) = self.tls() {
            tls.connection.send_close_notify();
        }
        ready!(self.poll_sent(context))?;
        Poll::Ready(shutdown(&self.tcp, Shutdown::Write).map_err(io::Error::from))
    }

    /// The same connection for a thread that may block, with a timeout for each read and write.
    pub(crate) fn into_blocking(self, timeout: Duration) -> io::Result<BlockingStream> {
        let tcp = self.tcp.into_std()?;
        tcp.set_nonblocking(false)?;
        tcp.set_read_timeout(Some(timeout))?;
        tcp.set_write_timeout(Some(timeout))?;
        let tls = self.tls.map(|tls| tls.into_inner().unwrap_or_else(PoisonError::into_inner));
        Ok(BlockingStream { tcp, tls: tls.map(|tls| tls.connection) })
    }
}

impl Tls {
    fn has_plaintext(&mut self) -> bool {
        self.connection.reader().fill_buf().is_ok_and(|bytes| !bytes.is_empty())
    }

    fn add_unsent(&self, interest: Interest) -> Interest {
        if self.connection.wants_write() { interest | Interest::WRITABLE } else { interest }
    }

    /// Sends as much as the socket takes now.
    fn send(&mut self, tcp: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut NonBlocking(tcp)) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Decrypts what the socket has now; returns false if it has nothing.
    fn receive(&mut self, tcp: &TcpStream) -> io::Result<bool> {
        if let Some(reply) = self.plaintext_reply {
            match self.speaks_tls(tcp) {
                Ok(true) => {}
                Ok(false) => {
                    let _ = tcp.try_write(reply);
                    let why = "the client does not speak TLS";
                    return Err(io::Error::new(ErrorKind::InvalidData, why));
                }
                // A socket may be reported as ready before anything has arrived.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        match self.connection.read_tls(&mut NonBlocking(tcp)) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        let processed = self.connection.process_new_packets();
        // In case of an error, this sends the alert with the reason.
        let sent = self.send(tcp);
        processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        sent.map(|()| true)
    }

    /// Peeks at the first byte. Returns false if it is not that of a TLS connection.
    fn speaks_tls(&mut self, tcp: &TcpStream) -> io::Result<bool> {
        let mut first = [0];
        let (count, _) = tcp.try_io(Interest::READABLE, || {
            rustix::net::recv(tcp, &mut first, rustix::net::RecvFlags::PEEK)
                .map_err(io::Error::from)
        })?;
        if count > 0 {
            self.plaintext_reply = None;
        }
        Ok(count == 0 || first == [HANDSHAKE_RECORD])
    }

    fn read(&mut self, tcp: &TcpStream, into: &mut impl BufMut) -> io::Result<usize> {
        loop {
            let mut reader = self.connection.reader();
            match reader.fill_buf() {
                Ok(bytes) => {
                    // Zero bytes mean that the other side has sent `close_notify`.
                    let count = bytes.len().min(into.remaining_mut());
                    into.put_slice(bytes.get(..count).unwrap_or_default());
                    reader.consume(count);
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // It closed the connection without `close_notify`. Every protocol here marks the
                // end of its messages itself, so truncation can't go unnoticed.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) => return Err(error),
            }
            if !self.receive(tcp)? {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
    }

    /// Accepts data only once everything accepted before is sent, so that little is ever waiting.
    fn write(
        &mut self,
        tcp: &TcpStream,
        put: impl FnOnce(&mut rustls::Writer<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.send(tcp)?;
        if self.connection.wants_write() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = put(&mut self.connection.writer())?;
        self.send(tcp)?;
        // The buffer is full: the handshake is not done.
        if taken == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }
}

/// Adapts a socket to the interface that rustls reads from and writes to.
struct NonBlocking<'a>(&'a TcpStream);

impl Read for NonBlocking<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl Write for NonBlocking<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_read_ready(context))?;
            match self.try_read_buf(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|_| ())),
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_write_ready(context))?;
            match self.try_write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_close(context)
    }
}

/// A connection on a thread that may block.
pub(crate) struct BlockingStream {
    tcp: std::net::TcpStream,
    tls: Option<Connection>,
}

impl Read for BlockingStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.tcp.read(into) };
        loop {
            match tls.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            tls.complete_io(&mut self.tcp)?;
        }
    }
}

impl Write for BlockingStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.tcp.write(bytes) };
        while tls.wants_write() {
            tls.write_tls(&mut self.tcp)?;
        }
        let taken = tls.writer().write(bytes)?;
        while tls.wants_write() {
            tls.write_tls(&mut self.tcp)?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tcp.flush()
    }
}
