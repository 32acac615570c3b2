//! Free ports on loopback.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the range of ephemeral ports: thousands of clients connect, and must not get the port of a
/// node that is being restarted.
const FIRST: u16 = 10_000;
const LAST: u16 = 31_000;

/// Holdfast's peer port is ten above its client port: the same layout is used for all.
const PEER_ABOVE: u16 = 10;
const ELECTION_ABOVE: u16 = 11;

/// The distance between two nodes' ports.
const APART: u16 = 20;

/// How many nodes have been given ports so far: a client that is still looking for the servers of
/// an earlier measurement must not find those of the next.
static GIVEN: AtomicU32 = AtomicU32::new(0);

/// The ports of one node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) clients: u16,
    pub(super) peers: u16,
    /// Only ZooKeeper uses it.
    pub(super) election: u16,
}

impl Ports {
    /// The two above the client port are for the Redis and ZooKeeper protocols.
    fn all(&self) -> [u16; 5] {
        [self.clients, self.clients + 1, self.clients + 2, self.peers, self.election]
    }
}

/// Free ports for this many nodes.
pub(super) fn free(nodes: u16) -> Result<Vec<Ports>, String> {
    // Two concurrent runs start at different places.
    let room = LAST - FIRST;
    let given = GIVEN.fetch_add(u32::from(nodes), Ordering::Relaxed) * u32::from(APART);
    let begin = std::process::id().wrapping_mul(97).wrapping_add(given);
    let offset = (begin % u32::from(room)) as u16;
    let places = (0..room).step_by(usize::from(APART)).map(|at| FIRST + (at + offset) % room);
    let ports = places.map(|clients| Ports {
        clients,
        peers: clients + PEER_ABOVE,
        election: clients + ELECTION_ABOVE,
    });
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let free = ports.filter(|ports| ports.all().into_iter().all(is_free));
    let free: Vec<Ports> = free.take(usize::from(nodes)).collect();
    if free.len() < usize::from(nodes) {
        return Err(format!(
            "no {nodes} free ports between {FIRST} and {LAST}: end what uses them"
        ));
    }
    Ok(free)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn nodes_and_measurements_use_different_ports() {
        let (ports, later) = (free(3).expect("free ports"), free(3).expect("more free ports"));
        let all = ports.iter().chain(&later).flat_map(Ports::all);
        assert_eq!(all.collect::<HashSet<u16>>().len(), 30);
    }
}
