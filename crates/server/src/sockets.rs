//! Connections of clients, whatever is said on them: how many there may be, and whether the other
//! side lives.

use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::sleep;

/// Connections of one door at once. One that waits costs about 20 KB: all of them stay near 200 MB.
const CONNECTIONS_MAX: usize = 10_000;

/// Doors with connections of their own: HTTP with gRPC, Redis.
const DOORS: u64 = 2;

/// Files that the log, the snapshots and the peers need.
const FILES_KEPT: u64 = 256;

/// After so much silence a peer is asked whether it lives; and so long it may take to say so.
pub(crate) const ALIVE_AFTER: Duration = Duration::from_secs(30);

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

/// A peer that hung up is its own affair; anything else may pass.
pub(crate) async fn hold_on(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::warn!("can't take a connection: {error}");
        sleep(Duration::from_secs(1)).await;
    }
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
