//! A client that holds a lock while the leader it is connected to is killed or stopped.

use crate::client_load::{NativeLoad, urls};
use crate::support::Cluster;
use holdfast_client::{Client, Guard, Health};
use rustix::process::Signal;

const CLIENTS: u64 = 6;

/// A lock taken through this node first.
async fn held_through(cluster: &mut Cluster, node: usize) -> Guard {
    let mut ports = cluster.ports();
    ports.rotate_left(node);
    let client = Client::connect(urls(&ports)).await.expect("a client");
    client.lock("through-it-all").acquire().await.expect("a lock")
}

/// Would fail if the session were bound to its connection, if a client did not find another server,
/// or if a retried request had two effects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guard_stays_good_when_the_leader_is_killed() {
    let mut cluster = Cluster::start(3);
    let servers = urls(&cluster.ports());
    let leader = cluster.leader();
    let guard = held_through(&mut cluster, leader).await;
    let load = NativeLoad::start(CLIENTS, &servers);
    load.goes_on(100);
    cluster.nodes[leader].kill();
    load.goes_on(100);
    assert_eq!(guard.health(), Health::Good);
    let alive = cluster.follower();
    let port = cluster.nodes[alive].port;
    assert_eq!(cluster.http.holders(port, "through-it-all"), [guard.token().get()]);
    guard.release().await.expect("it was held all the time");
    load.finish(&cluster.http, port, &servers).await;
}

/// Would also fail if a client waited forever for a server that does not answer, or believed a
/// leader that was stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guard_stays_good_when_the_leader_is_paused() {
    let mut cluster = Cluster::start(3);
    let servers = urls(&cluster.ports());
    let leader = cluster.leader();
    let guard = held_through(&mut cluster, leader).await;
    let load = NativeLoad::start(CLIENTS, &servers);
    load.goes_on(100);
    cluster.nodes[leader].signal(Signal::STOP);
    load.goes_on(100);
    // Only through another server: the one it was connected to does not answer.
    guard.note(Some(b"still here")).await.expect("another server takes it");
    cluster.nodes[leader].signal(Signal::CONT);
    load.goes_on(100);
    assert_eq!(guard.health(), Health::Good);
    let port = cluster.nodes[leader].port;
    assert_eq!(cluster.http.holders(port, "through-it-all"), [guard.token().get()]);
    guard.release().await.expect("it was held all the time");
    load.finish(&cluster.http, port, &servers).await;
}

/// Would fail if a grant were acknowledged before a majority had it, if a token were granted twice,
/// if a lock had two holders at once, or if a lost reply were not settled by the request's number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_agree_after_each_node_was_killed() {
    let mut cluster = Cluster::start(3);
    let servers = urls(&cluster.ports());
    let load = NativeLoad::start(CLIENTS, &servers);
    load.goes_on(50);
    for node in 0..3 {
        cluster.nodes[node].kill();
        load.goes_on(50);
        cluster.nodes[node].start();
        cluster.all_ready();
        load.goes_on(50);
    }
    let port = cluster.nodes[0].port;
    let taken = load.finish(&cluster.http, port, &servers).await;
    crate::support::measured(&format!("{taken} locks through the native API, 3 nodes killed"));
}
