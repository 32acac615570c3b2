//! A node that can't have heartbeats acknowledged closes its clients' connections in time: long before
//! the rest of the cluster may end their sessions.

use crate::checks::Violation;
use holdfast_core::SessionId;
use holdfast_node::NodeId;

/// An open connection with a heartbeat that is not acknowledged.
#[derive(Debug)]
pub(crate) struct Unacknowledged {
    pub(crate) node: NodeId,
    pub(crate) session: SessionId,
    /// Since when, as far as the node could do something about it.
    pub(crate) since_us: u64,
    pub(crate) timeout_ms: u64,
}

/// Judges a node that has just had the time to close what is due. A third of the timeout may pass;
/// what is added is for a clock that is slow, and for the turn itself.
pub(super) fn open(
    connections: impl Iterator<Item = Unacknowledged>,
    now_us: u64,
) -> Result<(), Violation> {
    for Unacknowledged { node, session, since_us, timeout_ms } in connections {
        let within_us = timeout_ms * 1_000 / 3;
        if since_us + within_us + within_us / 50 + 1_000 < now_us {
            return Err(format!(
                "cut off: node {node} still serves the client of session {session}, without a \
                 heartbeat acknowledged for {} ms of its timeout of {timeout_ms} ms",
                (now_us - since_us) / 1_000
            ));
        }
    }
    Ok(())
}
