//! Liveness: once faults have stopped there is a leader, everybody gets on, all replicas have caught
//! up and are sound, and the cluster is at the level of its programs.

use super::{Belief, Checks, Violation, let_go, restored};
use crate::client::Client;
use crate::host::Host;
use crate::zookeeper;
use holdfast_node::{LEVEL, NodeId};
use std::collections::BTreeMap;

/// Entries that a node may be behind, because they are on their way.
const BEHIND_MAX: u64 = 50;

/// Judges a cluster that has had no fault for a minute.
pub(crate) fn judge(
    hosts: &BTreeMap<NodeId, Host>,
    clients: &[Client],
    zookeeper_clients: &[zookeeper::Client],
    checks: &mut Checks,
    beliefs: &[Belief],
    now_us: u64,
) -> Result<(), Violation> {
    let nodes = || hosts.values().filter_map(|host| host.node.as_ref());
    let Some(leader) = nodes().find(|node| node.is_leader()) else {
        return Err("liveness: a minute after the last fault there is no leader".to_owned());
    };
    if let Some(stuck) = clients.iter().find(|client| client.done == 0) {
        let (number, calls, sizes) = (stuck.number, &stuck.app.calls, stuck.session.sizes());
        return Err(format!(
            "liveness: client {number} got nowhere in a minute: {calls:?}, {sizes:?}"
        ));
    }
    if let Some(stuck) = zookeeper_clients.iter().find(|client| client.done == 0) {
        let (number, connected) = (stuck.number, stuck.is_connected());
        return Err(format!(
            "liveness: ZooKeeper client {number} got nowhere in a minute; connected: {connected}"
        ));
    }
    let level = leader.cluster().level();
    if level != LEVEL {
        return Err(format!(
            "liveness: a minute after the last upgrade the cluster is still at level {level}"
        ));
    }
    let last = checks.last_applied();
    for node in nodes() {
        let (id, at) = (node.id(), node.applied().index);
        // A node that was removed while it was down does not know it, and nobody sends it entries.
        if leader.cluster().members().contains_key(&id) && at + BEHIND_MAX < last {
            return Err(format!("liveness: node {id} is at entry {at}, the others at {last}"));
        }
        node.state().check()?;
    }
    let state = leader.state();
    checks.guards_at_the_end(beliefs, now_us)?;
    checks.ghosts(state, now_us)?;
    restored::judge(state)?;
    checks.zookeeper.judge_the_end(now_us)?;
    for client in zookeeper_clients {
        let_go::judge_zookeeper(state, client)?;
    }
    clients.iter().try_for_each(|client| let_go::judge(state, client))
}
