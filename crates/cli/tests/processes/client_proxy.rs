//! A proxy to a server that can go silent, swallow replies, or cut connections.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, tcp};
use tokio::sync::watch;

/// What happens to traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    /// Requests pass, replies don't.
    NoAnswers,
    /// Nothing passes, and no connection is closed.
    Silent,
    /// Connections are closed, and no new ones accepted.
    Cut,
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    way: Arc<watch::Sender<Way>>,
}

impl Proxy {
    /// To a port on loopback.
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let own = listener.local_addr().expect("it has an address").port();
        let way = Arc::new(watch::Sender::new(Way::Open));
        let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
        tokio::spawn(serve(listener, port, way.clone()));
        Self { port: own, way }
    }

    pub(crate) fn set(&self, way: Way) {
        self.way.send_replace(way);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

async fn serve(listener: tokio::net::TcpListener, port: u16, way: Arc<watch::Sender<Way>>) {
    while let Ok((client, _)) = listener.accept().await {
        if *way.borrow() == Way::Cut {
            continue;
        }
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else { continue };
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::spawn(pass(from_client, to_server, way.subscribe(), false));
        tokio::spawn(pass(from_server, to_client, way.subscribe(), true));
    }
}

async fn pass(
    mut from: tcp::OwnedReadHalf,
    mut to: tcp::OwnedWriteHalf,
    mut way: watch::Receiver<Way>,
    answers: bool,
) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let read = tokio::select! {
            read = from.read(&mut bytes) => read,
            changed = way.changed() => match changed {
                Ok(()) if *way.borrow() != Way::Cut => continue,
                _ => return,
            },
        };
        let Ok(length @ 1..) = read else { return };
        let passes = match *way.borrow() {
            Way::Open => true,
            Way::NoAnswers => !answers,
            Way::Silent => false,
            Way::Cut => return,
        };
        if passes && to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}
