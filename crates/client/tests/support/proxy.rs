//! A connection to a server whose answers can be delayed, and which can be cut.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, tcp};
use tokio::sync::watch;

/// What happens to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    /// Requests pass, answers are held.
    AnswersWait,
    /// Connections are accepted, and nothing passes: a server that hangs.
    Stalled,
    /// Connections are closed, and no new ones accepted.
    Cut,
}

pub(crate) struct Proxy {
    pub(crate) url: String,
    way: Arc<watch::Sender<Way>>,
}

impl Proxy {
    /// To a server on loopback, `http://127.0.0.1:PORT`.
    pub(crate) fn to(url: &str) -> Self {
        let port = url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let url = format!("http://{}", listener.local_addr().expect("it has an address"));
        let way = Arc::new(watch::Sender::new(Way::Open));
        let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
        tokio::spawn(serve(listener, port, way.clone()));
        Self { url, way }
    }

    pub(crate) fn set(&self, way: Way) {
        self.way.send_replace(way);
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
        let waits = holds(*way.borrow_and_update(), answers);
        if *way.borrow() == Way::Cut {
            return;
        }
        let read = tokio::select! {
            read = from.read(&mut bytes), if !waits => read,
            changed = way.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        let Ok(length @ 1..) = read else { return };
        // Bytes that were read just before the way was closed are held too.
        if way.wait_for(|way| !holds(*way, answers)).await.is_err() {
            return;
        }
        if *way.borrow() == Way::Cut || to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}

/// Whether bytes in this direction are held.
fn holds(way: Way, answers: bool) -> bool {
    way == Way::Stalled || (answers && way == Way::AnswersWait)
}
