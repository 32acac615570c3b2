//! Connections of clients, whatever is said on them: how many there may be, and whether the other
//! side lives.

use crate::newcomers::{Newcomer, Newcomers};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Connections of one door at once. One that waits costs about 20 KB: all of them stay near 200 MB.
const CONNECTIONS_MAX: usize = 10_000;

/// Connections beyond the bound that are told so at the same time; others are just closed.
const REFUSED_MAX: usize = 64;

/// Doors with connections of their own: HTTP with gRPC, Redis.
const DOORS: u64 = 2;

/// How long a connection waits for the place of one that was told to go.
const PLACE_PATIENCE: Duration = Duration::from_secs(1);

/// Files that the log, the snapshots and the peers need.
const FILES_KEPT: u64 = 256;

/// After so much silence a peer is asked whether it lives; and so long it may take to say so.
pub(crate) const ALIVE_AFTER: Duration = Duration::from_secs(30);

/// The same for another node, and for what it was sent.
const PEER_ALIVE_AFTER: Duration = Duration::from_secs(3);

/// As many connections as each door of this process may have.
pub(crate) fn connections_max() -> usize {
    let files = files_allowed().saturating_sub(FILES_KEPT).max(FILES_KEPT) / DOORS;
    CONNECTIONS_MAX.min(usize::try_from(files).unwrap_or(usize::MAX))
}

/// Every connection is an open file, and what a shell allows at first is often only 1,024.
fn files_allowed() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    // None is no limit.
    (if raised { maximum } else { current }).unwrap_or(u64::MAX)
}

/// A door's connections.
pub(crate) struct Crowd {
    /// How many there may be.
    pub(crate) connections_max: usize,
    /// How many there are.
    pub(crate) open: Gauge,
    /// How many were refused.
    pub(crate) refused: Counter,
    /// What those hear.
    pub(crate) no_room: Vec<u8>,
}

/// Talks with everybody who comes, until the task is dropped, and every connection with it. One that
/// has asked for something is told to have [`Newcomer::arrived`]: until then it must make room for
/// others.
pub(crate) async fn serve<T: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    crowd: Crowd,
    talk: impl Fn(TcpStream, Arc<Newcomer>) -> T,
) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(crowd.connections_max));
    let refusals = Arc::new(Semaphore::new(REFUSED_MAX));
    let newcomers = Arc::<Newcomers>::default();
    let no_room: Arc<[u8]> = crowd.no_room.into();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                hold_on(&error).await;
                continue;
            }
        };
        let place = room.clone().try_acquire_owned().ok();
        if place.is_some() || newcomers.evict_oldest() {
            prepare(&stream);
            let (newcomer, notice) = newcomers.enter();
            let (room, open) = (room.clone(), crowd.open.clone());
            let talking = talk(stream, newcomer);
            connections.spawn(async move {
                let place = match place {
                    Some(place) => Some(place),
                    None => timeout(PLACE_PATIENCE, room.acquire_owned()).await.ok()?.ok(),
                };
                let _counted = Counted::new(open, place?);
                tokio::select! {
                    () = talking => {}
                    () = notice.given() => {}
                }
                Some(())
            });
            continue;
        }
        crowd.refused.inc();
        if let Ok(permit) = refusals.clone().try_acquire_owned() {
            let refused = refuse(stream, no_room.clone(), permit);
            connections.spawn(async move {
                refused.await;
                None
            });
        }
    }
}

/// A connection that counts as long as this lives.
struct Counted {
    open: Gauge,
    _permit: OwnedSemaphorePermit,
}

impl Counted {
    fn new(open: Gauge, permit: OwnedSemaphorePermit) -> Self {
        open.inc();
        Self { open, _permit: permit }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.open.dec();
    }
}

/// Says that there are too many connections.
async fn refuse(mut stream: TcpStream, no_room: Arc<[u8]>, _permit: OwnedSemaphorePermit) {
    let tell = async {
        stream.write_all(&no_room).await?;
        stream.shutdown().await?;
        // What the peer still sends must not make the system throw the answer away.
        let mut rest = [0; 1_024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(Duration::from_secs(1), tell).await;
}

/// A peer that hung up is its own affair; anything else may pass.
async fn hold_on(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::warn!("can't take a connection: {error}");
        sleep(Duration::from_secs(1)).await;
    }
}

/// A node whose machine or network is gone is noticed soon, so that it is dialed anew: by itself the
/// system would try what it has in line less and less often, and hardly ever after some minutes.
pub(crate) fn prepare_for_peer(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, PEER_ALIVE_AFTER);
    let _ = sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1));
    let _ = sockopt::set_tcp_keepcnt(stream, 3);
    let timeout_ms = u32::try_from(PEER_ALIVE_AFTER.as_millis()).unwrap_or(u32::MAX);
    let _ = sockopt::set_tcp_user_timeout(stream, timeout_ms);
}

/// Answers are small, and somebody waits for them. A peer whose machine is gone is noticed, so that
/// its waits end.
pub(crate) fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, ALIVE_AFTER);
    let _ = sockopt::set_tcp_keepintvl(stream, ALIVE_AFTER / 3);
    let _ = sockopt::set_tcp_keepcnt(stream, 3);
    let timeout_ms = u32::try_from(2 * ALIVE_AFTER.as_millis()).unwrap_or(u32::MAX);
    let _ = sockopt::set_tcp_user_timeout(stream, timeout_ms);
}
