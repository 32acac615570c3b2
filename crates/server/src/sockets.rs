//! TCP options for connections from clients and between nodes, mainly so that a dead other side is
//! noticed.

use rustix::net::sockopt;
use std::time::Duration;
use tokio::net::TcpStream;

/// How long an accepted connection may be silent before it is probed, and how long the probes may
/// take.
pub(crate) const ALIVE_AFTER: Duration = Duration::from_secs(30);

/// The same for a connection dialed to another node, which also has this long to acknowledge what
/// it was sent.
const PEER_ALIVE_AFTER: Duration = Duration::from_secs(3);

/// For connections dialed to another node. Notices soon when its machine or network is gone, so
/// that it is dialed again: left to itself, the kernel retransmits less and less often, and after
/// some minutes hardly ever.
pub(crate) fn prepare_for_peer(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, PEER_ALIVE_AFTER);
    let _ = sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1));
    let _ = sockopt::set_tcp_keepcnt(stream, 3);
    let timeout_ms = u32::try_from(PEER_ALIVE_AFTER.as_millis()).unwrap_or(u32::MAX);
    let _ = sockopt::set_tcp_user_timeout(stream, timeout_ms);
}

/// For accepted connections. Replies are small and someone is waiting for them, so they are not
/// delayed. A client whose machine is gone is noticed, so that its waits end.
pub(crate) fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, ALIVE_AFTER);
    let _ = sockopt::set_tcp_keepintvl(stream, ALIVE_AFTER / 3);
    let _ = sockopt::set_tcp_keepcnt(stream, 3);
    let timeout_ms = u32::try_from(2 * ALIVE_AFTER.as_millis()).unwrap_or(u32::MAX);
    let _ = sockopt::set_tcp_user_timeout(stream, timeout_ms);
}
