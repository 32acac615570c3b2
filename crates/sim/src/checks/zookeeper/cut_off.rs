//! A node that can't have heartbeats acknowledged lets go of its clients before the others may end
//! their sessions.

use crate::checks::Violation;
use holdfast_core::SessionId;
use holdfast_node::NodeId;

/// An open connection with a heartbeat that is not acknowledged.
#[derive(Debug)]
pub(crate) struct Unacknowledged {
    pub(crate) node: NodeId,
    /// Since when, as far as the node could do something about it.
    pub(crate) since_us: u64,
    pub(crate) timeout_ms: u64,
}

/// A third of the timeout may pass; the rest is for a slow node.
pub(super) fn expired(
    session: SessionId,
    open: &[Unacknowledged],
    now_us: u64,
) -> Result<(), Violation> {
    let late = |open: &&Unacknowledged| open.since_us + open.timeout_ms * 500 + 300_000 < now_us;
    match open.iter().find(late) {
        Some(Unacknowledged { node, since_us, .. }) => Err(format!(
            "cut off: session {session} expired, and node {node} still has its client, without a \
             heartbeat acknowledged for {} ms",
            (now_us - since_us) / 1_000
        )),
        None => Ok(()),
    }
}
