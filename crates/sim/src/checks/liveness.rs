//! Liveness: once faults have stopped there is a leader, everybody gets on, and all replicas have
//! caught up and are sound.

use super::{Checks, Violation};
use crate::client::Client;
use crate::host::Host;
use holdfast_node::{Node, NodeId};
use std::collections::BTreeMap;

/// Entries that a node may be behind, because they are on their way.
const BEHIND_MAX: u64 = 50;

/// Judges a cluster that has had no fault for a minute.
pub(crate) fn judge(
    hosts: &BTreeMap<NodeId, Host>,
    clients: &[Client],
    checks: &Checks,
) -> Result<(), Violation> {
    let nodes = || hosts.values().filter_map(|host| host.node.as_ref());
    if !nodes().any(Node::is_leader) {
        return Err("liveness: a minute after the last fault there is no leader".to_owned());
    }
    if let Some(stuck) = clients.iter().find(|client| client.done == 0) {
        let (number, doing) = (stuck.number, &stuck.doing);
        return Err(format!("liveness: client {number} got nowhere in a minute: {doing:?}"));
    }
    let last = checks.last_applied();
    for node in nodes() {
        let (id, at) = (node.id(), node.applied().index);
        if node.cluster().members().contains_key(&id) && at + BEHIND_MAX < last {
            return Err(format!("liveness: node {id} is at entry {at}, the others at {last}"));
        }
        node.state().check()?;
    }
    Ok(())
}
