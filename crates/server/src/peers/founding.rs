//! The beginning of a cluster of several: each first member introduces itself to all others, and
//! takes part only when each of them has noted its folder (`known.rs`).
//!
//! With fewer, a first member that was started late, or was down, could not tell a node that lost its
//! folder from one that is new: the two would be a majority that knows nothing of what was
//! acknowledged before.

use super::Shared;
use super::connection::NoConnection;
use super::hello::Purpose;
use crate::engine::{End, Post};
use holdfast_node::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How long until those that were not met are tried again.
const RETRY: Duration = Duration::from_millis(100);

/// Until every first member has noted this node's folder; at once if they have.
pub(crate) async fn found(shared: Arc<Shared>) {
    let mut told = Vec::new();
    let mut complaints = BTreeMap::new();
    loop {
        for node in shared.known.awaited() {
            match introduce(&shared, node).await {
                Ok(()) => {}
                Err(NoConnection::Because(why)) => {
                    if complaints.get(&node) != Some(&why) {
                        tracing::warn!("no connection to node {node}: {why}");
                        complaints.insert(node, why);
                    }
                }
                Err(for_good) => {
                    let end = End::Lost { why: for_good.to_string(), may_rejoin: false };
                    shared.inbox.post_always(Post::Stop(end));
                    return;
                }
            }
        }
        let awaited = shared.known.awaited();
        if awaited.is_empty() {
            return;
        }
        if awaited != told {
            tracing::info!("{}", waiting_for(&awaited));
            told = awaited;
        }
        sleep(RETRY).await;
    }
}

/// Why a node does not take part yet.
pub(super) fn waiting_for(awaited: &[NodeId]) -> String {
    let awaited: Vec<String> = awaited.iter().map(NodeId::to_string).collect();
    format!(
        "a new cluster begins when all its first members have been started and reach each other: \
         waiting for node {}",
        awaited.join(", ")
    )
}

/// Lets another node note this one's folder.
async fn introduce(shared: &Shared, node: NodeId) -> Result<(), NoConnection> {
    // It notes the folder of whoever comes before it says welcome.
    shared.dial(node, Purpose::Members).await?;
    Ok(shared.known.noted_by(node).await?)
}
