//! A network between the nodes that forgets connections, like a firewall that is restarted.

use crate::support::{Cluster, Node, eventually};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// The network between the nodes.
#[derive(Clone, Default)]
struct Network {
    /// How often it has forgotten all connections.
    forgot: Arc<AtomicU64>,
}

impl Network {
    /// From now on nothing passes over existing connections, and none is closed; new ones work.
    fn forget(&self) {
        self.forgot.fetch_add(1, Ordering::SeqCst);
    }

    /// Forwards another address to the node at this port of 127.0.0.1.
    fn lead(&self, from: Ipv4Addr, port: u16) {
        let listener = TcpListener::bind(SocketAddrV4::new(from, port)).expect("a free address");
        let network = self.clone();
        thread::spawn(move || {
            for dialed in listener.incoming().flatten() {
                let Ok(node) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
                let known = network.forgot.load(Ordering::SeqCst);
                let both = (dialed.try_clone().expect("a handle"), node.try_clone().expect("one"));
                for (from, to) in [(dialed, node), (both.1, both.0)] {
                    let network = network.clone();
                    thread::spawn(move || network.pass(from, to, known));
                }
            }
        });
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream, known: u64) {
        let remembers = || self.forgot.load(Ordering::SeqCst) == known;
        let mut bytes = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            if remembers() && to.write_all(&bytes[..length]).is_err() {
                break;
            }
        }
        if remembers() {
            let _ = to.shutdown(Shutdown::Both);
        }
    }
}

/// After a long partition, or when a firewall had forgotten the connections between the nodes, they
/// kept writing into connections that led nowhere: TCP retries less and less often, and nobody
/// reconnected. A cluster whose network was healthy again had no leader for a long time, or for
/// good.
#[test]
fn nodes_reconnect_after_a_silent_network_failure() {
    let mut cluster = Cluster::empty();
    let network = Network::default();
    let address = |k: u16| Ipv4Addr::new(127, 0, 0, 10 + k as u8);
    let peers = cluster.peer_ports(3);
    let member = |(k, port): (u16, &u16)| format!("{k}={}:{port}", address(k));
    let members: Vec<String> = (1..).zip(&peers).map(member).collect();
    let members = members.join(",");
    for (k, port) in (1..).zip(&peers) {
        network.lead(address(k), *port);
        let (id, host) = (k.to_string(), address(k).to_string());
        cluster.add(["--node", &id, "--members", &members, "--advertise", &host]);
    }
    cluster.nodes.iter_mut().for_each(Node::start);
    cluster.all_ready();
    for round in 0..3 {
        let port = cluster.nodes[round].port;
        let held = cluster.http.grab(port, "seat");
        network.forget();
        cluster.http.let_go(port, &held);
        for at in 0..3 {
            let port = cluster.nodes[at].port;
            let name = format!("round {round} at {at}");
            cluster.http.grab(port, &name);
            eventually("everybody hears of it", || {
                let applied = |node: &Node| node.status(&cluster.http)?["applied"].as_u64();
                let all: Option<Vec<u64>> = cluster.nodes.iter().map(applied).collect();
                let all = all?;
                (all.iter().max()? - all.iter().min()? < 100).then_some(())
            });
        }
    }
}
