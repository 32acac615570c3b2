//! ZooKeeper clients of three nodes: sessions that outlive their node, and nodes that are cut off.

use crate::support::{Cluster, TIMEOUT, eventually};
use crate::zookeeper_client::Zk;
use holdfast_core::NodeKind;
use holdfast_zookeeper::codec::WatchEventType::Deleted;
use rustix::process::Signal;
use std::time::{Duration, Instant};

const KAZOO: &str = "0123456789__lock__";

fn connect(port: u16, timeout_ms: i32) -> Zk {
    eventually("the ZooKeeper door is open", || Zk::open(port + 2, timeout_ms).ok())
}

/// Goes on with a session at one of these nodes, as clients do: one after the other.
fn attach(zk: &mut Zk, ports: &[u16]) {
    let mut next = ports.iter().cycle();
    eventually("a node goes on with the session", || {
        let port = next.next().expect("there are nodes");
        // During an election a node may close the connection; it never says that the session ended.
        let attached = zk.attach(port + 2).ok()?;
        assert!(attached, "the session has ended");
        Some(())
    });
}

#[test]
fn a_client_of_any_node_sees_the_same_line_and_is_woken_by_another_nodes_client() {
    let mut cluster = Cluster::start(3);
    let mut clients: Vec<Zk> = cluster.ports().iter().map(|port| connect(*port, 60_000)).collect();
    clients[0].make("/locks/seat");
    let mut places = Vec::<(String, u64)>::new();
    for zk in &mut clients {
        zk.sync();
        let place = zk.contend("/locks/seat", KAZOO).unwrap();
        if let Some((before, _)) = places.last() {
            zk.get(before, true).unwrap();
        }
        places.push(place);
    }
    assert!(places.is_sorted_by_key(|(_, token)| *token));
    for at in 0..2 {
        clients[at].delete(&places[at].0).unwrap();
        assert_eq!(clients[at + 1].event(), (Deleted, places[at].0.clone()));
        let port = cluster.ports()[at];
        assert_eq!(cluster.http.holders(port, "locks%2Fseat"), [places[at + 1].1]);
    }
}

/// The leader is killed, with the connection of the holder on it: the session goes on elsewhere, and
/// its lock stays.
#[test]
fn a_session_and_its_lock_outlive_their_node() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let mut holder = connect(cluster.nodes[leader].port, 10_000);
    holder.make("/seat");
    let (held, token) = holder.contend("/seat", KAZOO).unwrap();
    let other = cluster.nodes[(leader + 1) % 3].port;
    let mut waiter = connect(other, 60_000);
    waiter.sync();
    waiter.contend("/seat", KAZOO).unwrap();
    waiter.get(&held, true).unwrap();

    cluster.nodes[leader].kill();
    assert!(holder.is_closed());
    attach(&mut holder, &cluster.ports());
    assert_eq!(holder.get(&held, false).unwrap().1.czxid, token);
    assert_eq!(cluster.http.holders(other, "seat"), [token]);
    holder.delete(&held).unwrap();
    assert_eq!(waiter.event(), (Deleted, held));
}

/// A client that dies with its node does not come back: the lock passes on.
#[test]
fn the_lock_of_a_dead_client_passes_on_when_its_node_died_too() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let mut dies = connect(cluster.nodes[leader].port, 2_000);
    dies.make("/seat");
    let (held, _) = dies.contend("/seat", KAZOO).unwrap();
    let mut waiter = connect(cluster.nodes[(leader + 1) % 3].port, 60_000);
    waiter.sync();
    waiter.contend("/seat", KAZOO).unwrap();
    waiter.get(&held, true).unwrap();
    cluster.nodes[leader].kill();
    drop(dies);
    assert_eq!(waiter.event(), (Deleted, held));
}

/// A node that no longer reaches a majority can't know whether a session lives. Its client pings, as
/// clients do, and must be disconnected before the others may give its locks away.
#[test]
fn a_node_that_is_cut_off_closes_its_connections_before_their_sessions_may_end() {
    const TIMEOUT_MS: i32 = 6_000;
    let mut cluster = Cluster::start(3);
    let cut_off = cluster.follower();
    let mut zk = connect(cluster.nodes[cut_off].port, TIMEOUT_MS);
    zk.create("/mine", NodeKind::Ephemeral, false).unwrap();
    zk.ping().unwrap();
    let acknowledged = Instant::now();
    for (at, node) in cluster.nodes.iter().enumerate() {
        if at != cut_off {
            node.signal(Signal::STOP);
        }
    }
    zk.stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    // It pings every third of its timeout.
    let closed = loop {
        let until = Duration::from_millis(TIMEOUT_MS as u64 / 3);
        zk.stream.set_read_timeout(Some(until)).unwrap();
        if zk.ping().is_err_and(|error| error.kind() != std::io::ErrorKind::WouldBlock) {
            break acknowledged.elapsed();
        }
        assert!(acknowledged.elapsed() < TIMEOUT, "it is never closed");
    };
    for (at, node) in cluster.nodes.iter().enumerate() {
        if at != cut_off {
            node.signal(Signal::CONT);
        }
    }
    // Asserts a time, with all the slack that there is: the session may end after its timeout.
    assert!(closed < Duration::from_millis(TIMEOUT_MS as u64), "closed after {closed:?}");
    // Nobody could end it meanwhile: it goes on.
    attach(&mut zk, &cluster.ports());
    assert!(zk.exists("/mine", false));
}
