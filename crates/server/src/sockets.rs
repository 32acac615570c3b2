//! How a TCP connection is set up, of a client or of another node: whether its other side lives.

use rustix::net::sockopt;
use std::time::Duration;
use tokio::net::TcpStream;

/// After so much silence a peer is asked whether it lives; and so long it may take to say so.
pub(crate) const ALIVE_AFTER: Duration = Duration::from_secs(30);

/// The same for another node, and for what it was sent.
const PEER_ALIVE_AFTER: Duration = Duration::from_secs(3);

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
