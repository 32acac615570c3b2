//! A TCP proxy in front of an engine that can lose replies and delay requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

/// What the proxy does with traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Passes everything on.
    Open = 0,
    /// Passes requests on and drops the replies, as if the network had failed just then.
    LoseAnswers = 1,
    /// Drops both ways, without closing anything.
    Silent = 2,
}

pub(crate) struct Proxy {
    pub(crate) address: String,
    shared: Arc<Shared>,
    cut: watch::Sender<u64>,
}

/// Connections are numbered from 1, in the order in which they are opened.
#[derive(Default)]
struct Shared {
    mode: AtomicU8,
    opened: AtomicU64,
    /// Up to this connection, requests are delayed, even if the client has disconnected.
    delayed: AtomicU64,
    /// Up to this connection, nothing passes, and nothing is closed.
    silenced: AtomicU64,
}

impl Proxy {
    pub(crate) async fn start(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared::default());
        let (cut, _) = watch::channel(0);
        let (own, shared_cut) = (shared.clone(), cut.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (target, shared, cut) = (target.clone(), own.clone(), shared_cut.subscribe());
                let number = shared.opened.fetch_add(1, Ordering::SeqCst) + 1;
                tokio::spawn(carry(client, target, number, shared, cut));
            }
        });
        Self { address, shared, cut }
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.shared.mode.store(mode as u8, Ordering::SeqCst);
    }

    /// Closes all connections; new ones are accepted.
    pub(crate) fn cut(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }

    /// Holds back what is sent over the current connections, until [`Proxy::deliver`]. New ones are
    /// not affected.
    pub(crate) fn delay(&self) {
        let opened = self.shared.opened.load(Ordering::SeqCst);
        self.shared.delayed.store(opened, Ordering::SeqCst);
    }

    pub(crate) fn deliver(&self) {
        self.shared.delayed.store(0, Ordering::SeqCst);
    }

    /// Cuts off the current connections, without closing them.
    pub(crate) fn silence(&self) {
        let opened = self.shared.opened.load(Ordering::SeqCst);
        self.shared.silenced.store(opened, Ordering::SeqCst);
    }
}

impl Shared {
    fn is(&self, mode: Mode) -> bool {
        self.mode.load(Ordering::SeqCst) == mode as u8
    }

    fn passes(&self, number: u64, modes: &[Mode]) -> bool {
        let silenced = number <= self.silenced.load(Ordering::SeqCst);
        !silenced && modes.iter().any(|mode| self.is(*mode))
    }

    async fn on_time(&self, number: u64) {
        while number <= self.delayed.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn carry(
    client: TcpStream,
    target: String,
    number: u64,
    shared: Arc<Shared>,
    mut cut: watch::Receiver<u64>,
) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = from_client.read(&mut buffer).await?;
            if read == 0 {
                return std::io::Result::Ok(());
            }
            shared.on_time(number).await;
            if shared.passes(number, &[Mode::Open, Mode::LoseAnswers]) {
                to_server.write_all(&buffer[..read]).await?;
            }
        }
    };
    let answers = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = from_server.read(&mut buffer).await?;
            if read == 0 {
                return std::io::Result::Ok(());
            }
            if shared.passes(number, &[Mode::Open]) {
                // A client that disconnected does not keep the server from reading what is in
                // flight.
                let written = to_client.write_all(&buffer[..read]).await;
                if number > shared.delayed.load(Ordering::SeqCst) {
                    written?;
                }
            }
        }
    };
    tokio::pin!(requests, answers);
    tokio::select! {
        _ = &mut requests => {}
        _ = &mut answers => {}
        _ = cut.changed() => return,
    }
    // While the network is silent, nobody notices that the other side has disconnected: both stay
    // open.
    if !shared.passes(number, &[Mode::Open, Mode::LoseAnswers]) {
        let _ = cut.changed().await;
    }
}
