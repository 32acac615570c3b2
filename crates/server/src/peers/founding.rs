//! The beginning of a cluster of several: each first member introduces itself to all others, and
//! takes part only when each of them has noted its folder (`known.rs`).
//!
//! With fewer, a first member that was started late, or was down, could not tell a node that lost its
//! folder from one that is new: the two would be a majority that knows nothing of what was
//! acknowledged before.
//!
//! All of them must mean the same cluster. One whose cluster began without this node, or that was
//! told of other first members, does not let it in: otherwise the rest would begin a second cluster
//! under the same key.

use super::Shared;
use super::connection::NoConnection;
use super::hello::{Me, Purpose};
use crate::engine::{End, Post};
use holdfast_node::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// How long until those that were not met are tried again.
const RETRY: Duration = Duration::from_millis(100);

/// After this long without progress, the log says what to do if the others never come.
const ADVISE_AFTER: Duration = Duration::from_secs(30);

/// Until every first member has noted this node's folder; at once if they have.
pub(crate) async fn found(shared: Arc<Shared>) {
    let mut told = Vec::new();
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
                    let end = End::Lost { why, may_rejoin: false };
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

/// What to do about a first member that has another folder than the others have noted. Whether the
/// cluster has begun can't be told from here: two others may have begun it without a third.
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

/// Why a node that is about to begin a cluster must not count on this one; none if it may, or if its
/// cluster has begun.
pub(super) fn founding_clash(shared: &Shared, from: &Me) -> Option<String> {
    let theirs = from.founding.as_ref()?;
    let (me, them) = (shared.me.node, from.node);
    if shared.known.has_begun() {
        // One that began with the other has noted its folder before.
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

/// Why this node must stop if it is alone in its cluster and a member of another one, under the same
/// key, takes it for one of its own: it lost its folder and began again. None if that is not so.
pub(super) fn second_cluster(shared: &Shared, from: &Me) -> Option<String> {
    let (me, them) = (shared.me.node, from.node);
    let book = shared.book();
    let alone = book.voters.iter().eq([&me]) && !book.contacts.contains_key(&them);
    (alone && from.founding.is_none()).then(|| {
        format!(
            "this node is the only member of its cluster, but node {them} at {} is a member of a \
             cluster with the same key that has a node {me} too: this node lost its data folder and \
             began a second cluster. What it has granted since must not be relied on. Delete its \
             data folder and start it with --join {}; then remove the old node {me}",
            from.contact.peer, from.contact.peer
        )
    })
}

fn listed(nodes: &BTreeSet<NodeId>) -> String {
    let nodes: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
    nodes.join(",")
}

/// Lets another node note this one's folder.
async fn introduce(shared: &Shared, node: NodeId) -> Result<(), NoConnection> {
    // It notes the folder of whoever comes before it says welcome.
    shared.dial(node, Purpose::Members).await?;
    Ok(shared.known.noted_by(node).await?)
}
