//! Where a door accepts its connections, with TLS or without.

use crate::sockets::prepare;
use crate::stream::Stream;
use crate::tls::{Accepting, Tls};
use std::io;
use tokio::net::TcpListener;

/// The listening socket of a door.
pub(crate) struct Listener {
    tcp: TcpListener,
    tls: Option<(Tls, Accepting, &'static [u8])>,
}

impl From<TcpListener> for Listener {
    /// A door without TLS.
    fn from(tcp: TcpListener) -> Self {
        Self { tcp, tls: None }
    }
}

impl Listener {
    /// A door with TLS. A client that does not speak it is sent `needs_tls`.
    pub(crate) fn with_tls(
        tcp: TcpListener,
        tls: Tls,
        accepting: Accepting,
        needs_tls: &'static [u8],
    ) -> Self {
        Self { tcp, tls: Some((tls, accepting, needs_tls)) }
    }

    /// The next connection. Its TLS handshake has not begun. Cancel-safe.
    pub(crate) async fn accept(&self) -> io::Result<Stream> {
        let (tcp, _) = self.tcp.accept().await?;
        prepare(&tcp);
        match &self.tls {
            None => Ok(tcp.into()),
            Some((tls, accepting, needs_tls)) => tls.accept(tcp, *accepting, needs_tls),
        }
    }

    /// The port it listens on.
    pub(crate) fn port(&self) -> io::Result<u16> {
        Ok(self.tcp.local_addr()?.port())
    }
}
