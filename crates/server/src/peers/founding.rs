//! The start of a new cluster with several members: each first member introduces itself to all
//! others, and takes part only once each of them has recorded its folder (`known.rs`).
//!
//! If fewer were enough, a first member that was started late, or was down, could not tell a node
//! that lost its folder from a new one: the two would form a majority that knows nothing of what
//! was acknowledged before.
//!
//! All of them must mean the same cluster. A node whose cluster started without this one, or that
//! was configured with other first members, does not let it in: otherwise the rest would start a
//! second cluster under the same key.

use super::Shared;
use super::connection::NoConnection;
use super::handshake::{Introduction, Purpose};
use crate::engine::{Post, StopReason};
use holdfast_node::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// How long to wait before retrying the members that have not answered.
const RETRY: Duration = Duration::from_millis(100);

/// After this long without progress, the log says what to do if the others never come.
const ADVISE_AFTER: Duration = Duration::from_secs(30);

/// Runs until every first member has recorded this node's folder; returns immediately if they all
/// have.
pub(crate) async fn found(shared: Arc<Shared>) {
    let mut reported = Vec::new();
    let mut advise_at = None;
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
                    let why = match for_good {
                        NoConnection::Reborn => lost_folder(shared.me.node, node),
                        other => other.to_string(),
                    };
                    let end = StopReason::Lost { why, may_rejoin: false };
                    shared.inbox.post_always(Post::Stop(end));
                    return;
                }
            }
        }
        let awaited = shared.known.awaited();
        if awaited.is_empty() {
            return;
        }
        if awaited != reported {
            tracing::info!("{}", waiting_for(&awaited));
            reported = awaited;
            advise_at = Some(Instant::now() + ADVISE_AFTER);
        } else if advise_at.is_some_and(|at| at <= Instant::now()) {
            advise_at = None;
            tracing::warn!("{}", never_comes(&awaited));
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

/// What to do if a first member is gone for good, or has rejoined under another id meanwhile.
fn never_comes(awaited: &[NodeId]) -> String {
    let awaited: Vec<String> = awaited.iter().map(NodeId::to_string).collect();
    format!(
        "still waiting for node {}. If it will not come back under this id and the other members \
         serve (`holdfast status` says so), this node has not voted yet: delete its data folder, \
         start it with --join PEER-ADDRESS, then remove its old id",
        awaited.join(", ")
    )
}

/// What to do when a first member's folder is not the one that the others have recorded. This node
/// can't tell whether the cluster has started: two others may have started it without a third.
fn lost_folder(me: NodeId, noted_by: NodeId) -> String {
    format!(
        "node {noted_by} knows another folder than this one as that of node {me}: this one has \
         forgotten what node {me} may have voted for, and must not come back under its old id.\n\
         - If no first member has ever been ready, the cluster has not begun, and nothing was \
         granted: stop all first members, delete the data folders of all of them, and start them \
         again as the first time.\n\
         - If others serve, or did, the cluster has begun: start this node in an empty folder with \
         --join, then remove the old id"
    )
}

/// Why a node that is about to start a cluster must not count on this one; `None` if it may, or if
/// its cluster has already started.
pub(super) fn founding_clash(shared: &Shared, from: &Introduction) -> Option<String> {
    let theirs = from.founding.as_ref()?;
    let (me, them) = (shared.me.node, from.node);
    if shared.known.has_begun() {
        // If the cluster started with that node, its folder has been recorded.
        return (!shared.known.has_noted(them, from.birth)).then(|| {
            format!(
                "the cluster of node {me} has begun without node {them}, which was started with \
                 --members {}: a second cluster must not begin under the same key. To add node \
                 {them} to the running cluster, start it in an empty folder with --join {}",
                listed(theirs),
                shared.me.contact.peer
            )
        });
    }
    let ours = shared.book().voters.clone();
    (ours != *theirs).then(|| {
        format!(
            "the first members must be the same everywhere: node {me} was started with --members \
             {}, and node {them} with --members {}. Stop the one with the wrong list, delete its \
             data folder, and start it with the right list; to enter a cluster that runs already, \
             start it with --join instead",
            listed(&ours),
            listed(theirs)
        )
    })
}

/// Why this node must stop: it is alone in its cluster, and a member of another cluster with the
/// same key is looking for a node here, so this one lost its folder, or was started in another's
/// place, and began again. `None` if that is not the case.
pub(super) fn second_cluster(shared: &Shared, from: &Introduction) -> Option<String> {
    let (me, them) = (shared.me.node, from.node);
    let book = shared.book();
    let stranger =
        them != me && !book.contacts.contains_key(&them) && !book.removed.contains(&them);
    let alone = book.voters.iter().eq([&me]);
    (alone && stranger && from.founding.is_none()).then(|| {
        format!(
            "this node is the only member of its cluster, but node {them} at {} belongs to another \
             cluster with the same key: this node began a second cluster. What it has granted must \
             not be relied on. Delete its data folder and start it with --join {}; if it replaces a \
             member whose data is gone, remove that member's id then",
            from.contact.peer, from.contact.peer
        )
    })
}

fn listed(nodes: &BTreeSet<NodeId>) -> String {
    let nodes: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
    nodes.join(",")
}

/// Has another node record this one's folder.
async fn introduce(shared: &Shared, node: NodeId) -> Result<(), NoConnection> {
    // A node records the dialer's folder before it sends `Welcome`.
    shared.dial(node, Purpose::Members).await?;
    Ok(shared.known.noted_by(node).await?)
}
