//! A TCP proxy in front of an engine that can lose answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the proxy does with bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Passes everything on.
    Open = 0,
    /// Passes requests on and drops the answers, as if the network had failed just then.
    LoseAnswers = 1,
    /// Drops both ways, without closing anything.
    Silent = 2,
}

pub(crate) struct Proxy {
    pub(crate) address: String,
    mode: Arc<AtomicU8>,
    cut: watch::Sender<u64>,
}

impl Proxy {
    pub(crate) async fn start(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mode = Arc::new(AtomicU8::new(Mode::Open as u8));
        let (cut, _) = watch::channel(0);
        let (shared_mode, shared_cut) = (mode.clone(), cut.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (target, mode, cut) =
                    (target.clone(), shared_mode.clone(), shared_cut.subscribe());
                tokio::spawn(carry(client, target, mode, cut));
            }
        });
        Self { address, mode, cut }
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::SeqCst);
    }

    /// Closes all connections; new ones are accepted.
    pub(crate) fn cut(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }
}

async fn carry(
    client: TcpStream,
    target: String,
    mode: Arc<AtomicU8>,
    mut cut: watch::Receiver<u64>,
) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests =
        pump(&mut from_client, &mut to_server, mode.clone(), &[Mode::Open, Mode::LoseAnswers]);
    let answers = pump(&mut from_server, &mut to_client, mode.clone(), &[Mode::Open]);
    tokio::pin!(requests, answers);
    tokio::select! {
        _ = &mut requests => {}
        _ = &mut answers => {}
        _ = cut.changed() => return,
    }
    // While the network is silent, nobody hears that the other side has hung up: both stay open.
    if mode.load(Ordering::SeqCst) == Mode::Silent as u8 {
        let _ = cut.changed().await;
    }
}

async fn pump(
    from: &mut tokio::net::tcp::OwnedReadHalf,
    to: &mut tokio::net::tcp::OwnedWriteHalf,
    mode: Arc<AtomicU8>,
    passes: &[Mode],
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        let now = mode.load(Ordering::SeqCst);
        if passes.iter().any(|mode| *mode as u8 == now) {
            to.write_all(&buffer[..read]).await?;
        }
    }
}
