//! What a node leaves behind when it is killed, or stopped for longer than its session lives.

use crate::support::{Cluster, Http, Reply, TIMEOUT, eventually, unique};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Longer than any test: a wait that is served with nobody there would hold the lock for good.
const TTL_MS: u64 = 3_600_000;

/// A client that waits for a lock over HTTP, without a request id; returns what it is told in the
/// end.
fn wait(port: u16, name: &str, label: &str) -> JoinHandle<Result<Reply, String>> {
    let body = json!({ "name": name, "ttl_ms": TTL_MS, "wait_ms": TTL_MS, "label": label });
    let http = Http::new(3 * TIMEOUT);
    thread::spawn(move || http.post(port, "/v1/grab_lock", &body))
}

fn waiters(cluster: &Cluster, port: u16, name: &str) -> usize {
    let lock = cluster.http.get_ok(port, &format!("/v1/lock?name={name}"));
    lock["waiters"].as_array().map_or(0, Vec::len)
}

fn until_in_line(cluster: &Cluster, port: u16, name: &str, count: usize) {
    let what = format!("{count} wait for {name}");
    eventually(&what, || (waiters(cluster, port, name) == count).then_some(()));
}

fn granted(reply: Result<Reply, String>) -> Value {
    let reply = reply.expect("an answer");
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.body
}

/// A node was killed while a client waited for a lock there. The holder released it, and the killed
/// node's wait was served: it held the lock for its whole TTL, and nobody knew.
#[test]
fn wait_granted_through_a_killed_node_is_released() {
    let mut cluster = Cluster::start(3);
    let (leader, at) = (cluster.leader(), cluster.follower());
    let (elsewhere, port) = (cluster.nodes[leader].port, cluster.nodes[at].port);
    let held = cluster.http.grab(elsewhere, "seat");
    let lost = wait(port, "seat", "lost");
    until_in_line(&cluster, elsewhere, "seat", 1);
    let next = wait(elsewhere, "seat", "next");
    until_in_line(&cluster, elsewhere, "seat", 2);

    cluster.nodes[at].kill();
    cluster.http.let_go(elsewhere, &held);
    let _ = lost.join().expect("it ends").expect_err("its node is gone");
    granted(next.join().expect("it ends"));
    // Nobody has left anything half done.
    let lock = cluster.http.get_ok(elsewhere, "/v1/lock?name=seat");
    assert!(lock["needs_recovery"].is_null(), "{lock}");
}

/// A node was killed and restarted. The waits of its previous process stayed in line for ten more
/// seconds, and could be served.
#[test]
fn restarted_node_has_no_earlier_waits() {
    let mut cluster = Cluster::start(3);
    let (leader, at) = (cluster.leader(), cluster.follower());
    let (elsewhere, port) = (cluster.nodes[leader].port, cluster.nodes[at].port);
    let held = cluster.http.grab(elsewhere, "seat");
    let lost = wait(port, "seat", "lost");
    until_in_line(&cluster, elsewhere, "seat", 1);

    cluster.nodes[at].kill();
    let _ = lost.join().expect("it ends").expect_err("its node is gone");
    cluster.nodes[at].start();
    // What it accepts now belongs to its new session.
    cluster.nodes[at].ready(&cluster.http);
    cluster.http.grab(port, "another");
    assert_eq!(waiters(&cluster, elsewhere, "seat"), 0);
    cluster.http.let_go(port, &held);
}

/// A node was stopped for longer than its session lives, with a client waiting there. The wait was
/// served with nobody to notice, and held the lock for its whole TTL; when the node was continued,
/// the client was told that it holds a lock that may have had another holder by then.
#[test]
fn wait_at_a_paused_node_ends_with_an_error() {
    let mut cluster = Cluster::start(3);
    let (leader, at) = (cluster.leader(), cluster.follower());
    let (elsewhere, port) = (cluster.nodes[leader].port, cluster.nodes[at].port);
    let held = cluster.http.grab(elsewhere, "seat");
    let lost = wait(port, "seat", "lost");
    until_in_line(&cluster, elsewhere, "seat", 1);
    let next = wait(elsewhere, "seat", "next");
    until_in_line(&cluster, elsewhere, "seat", 2);

    cluster.nodes[at].signal(Signal::STOP);
    cluster.http.let_go(elsewhere, &held);
    let grant = granted(next.join().expect("it ends"));
    cluster.nodes[at].signal(Signal::CONT);
    let result = lost.join().expect("it ends").expect("an answer");
    assert_eq!((result.status, result.code()), (409, "not_acquired"), "{}", result.body);
    assert_eq!(cluster.http.holders(port, "seat"), [grant["fencing_token"].as_u64().unwrap()]);
}

/// With a request id a wait belongs to nobody, so that a retry finds it through any node: it must
/// stay in line, and be held, even if the node that accepted it is gone.
#[test]
fn wait_with_a_request_id_survives_its_node() {
    let mut cluster = Cluster::start(3);
    let (leader, at) = (cluster.leader(), cluster.follower());
    let (elsewhere, port) = (cluster.nodes[leader].port, cluster.nodes[at].port);
    let held = cluster.http.grab(elsewhere, "seat");
    let body = json!({
        "name": "seat", "ttl_ms": TTL_MS, "wait_ms": TTL_MS, "request_id": unique(),
    });
    let (http, first) = (Http::new(3 * TIMEOUT), body.clone());
    let lost = thread::spawn(move || http.post(port, "/v1/grab_lock", &first));
    until_in_line(&cluster, elsewhere, "seat", 1);

    cluster.nodes[at].kill();
    let _ = lost.join().expect("it ends").expect_err("its node is gone");
    cluster.nodes[at].start();
    cluster.nodes[at].ready(&cluster.http);
    cluster.http.grab(port, "another");
    assert_eq!(waiters(&cluster, elsewhere, "seat"), 1, "it still stands in line");
    cluster.http.let_go(elsewhere, &held);
    let retried = cluster.http.post_ok(elsewhere, "/v1/grab_lock", &body);
    let token = retried["fencing_token"].as_u64().expect("a token");
    assert_eq!(cluster.http.holders(port, "seat"), [token]);
}

/// A client that has been told of its grant has its whole lease, even if the node that told it is
/// killed right after.
#[test]
fn delivered_grant_survives_its_node() {
    let mut cluster = Cluster::start(3);
    let (leader, at) = (cluster.leader(), cluster.follower());
    let (elsewhere, port) = (cluster.nodes[leader].port, cluster.nodes[at].port);
    let held = cluster.http.grab(elsewhere, "seat");
    let waiting = wait(port, "seat", "lasting");
    until_in_line(&cluster, elsewhere, "seat", 1);
    cluster.http.let_go(elsewhere, &held);
    let grant = granted(waiting.join().expect("it ends"));
    assert_eq!(grant["ttl_ms"], TTL_MS, "{grant}");
    cluster.nodes[at].kill();
    cluster.nodes[at].start();
    cluster.nodes[at].ready(&cluster.http);
    cluster.http.grab(port, "another");
    // Longer than a node's session lives without the node.
    thread::sleep(Duration::from_secs(12));
    assert_eq!(cluster.http.holders(elsewhere, "seat"), [grant["fencing_token"].as_u64().unwrap()]);
}
