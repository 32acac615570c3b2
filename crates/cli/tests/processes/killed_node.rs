//! What a node leaves behind that is killed, or stands still for longer than its session lives.

use crate::support::{Cluster, Http, PATIENCE, Reply, eventually, unique};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Longer than any test: whoever is served with nobody there would hold the lock for good.
const TTL_MS: u64 = 3_600_000;

/// Somebody who waits for a lock over HTTP, without a request id; what it is told in the end.
fn wait(port: u16, name: &str, label: &str) -> JoinHandle<Result<Reply, String>> {
    let body = json!({ "name": name, "ttl_ms": TTL_MS, "wait_ms": TTL_MS, "label": label });
    let http = Http::new(3 * PATIENCE);
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

/// A node was killed while a caller waited there for a lock. The holder released it, and the killed
/// node's wait was served: for its whole TTL it held the lock, and nobody knew.
#[test]
fn a_wait_that_its_killed_node_can_t_tell_of_holds_nothing() {
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

/// A node was killed and started again. The waits of the process before stood in line for ten more
/// seconds, and could be served.
#[test]
fn a_node_that_is_started_again_has_no_waits_of_before() {
    let mut cluster = Cluster::start(3);
    let (leader, at) = (cluster.leader(), cluster.follower());
    let (elsewhere, port) = (cluster.nodes[leader].port, cluster.nodes[at].port);
    let held = cluster.http.grab(elsewhere, "seat");
    let lost = wait(port, "seat", "lost");
    until_in_line(&cluster, elsewhere, "seat", 1);

    cluster.nodes[at].kill();
    let _ = lost.join().expect("it ends").expect_err("its node is gone");
    cluster.nodes[at].start();
    // What it takes now, it takes under its new session.
    cluster.nodes[at].ready(&cluster.http);
    cluster.http.grab(port, "another");
    assert_eq!(waiters(&cluster, elsewhere, "seat"), 0);
    cluster.http.let_go(port, &held);
}

/// A node stood still for longer than its session lives, with a caller who waited there. The wait
/// was served with nobody there to hear of it, and held the lock for its whole TTL; when the node
/// went on, the caller was told that it holds a lock that may have been somebody else's by then.
#[test]
fn a_wait_at_a_node_that_stood_still_is_over_and_told_so() {
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
    let told = lost.join().expect("it ends").expect("an answer");
    assert_eq!((told.status, told.code()), (409, "not_acquired"), "{}", told.body);
    assert_eq!(cluster.http.holders(port, "seat"), [grant["fencing_token"].as_u64().unwrap()]);
}

/// With a request id a wait belongs to nobody, so that a retry finds it wherever it is sent: it
/// must stand in line, and be held, also if the node is gone that took it.
#[test]
fn a_wait_with_a_request_id_outlives_its_node() {
    let mut cluster = Cluster::start(3);
    let (leader, at) = (cluster.leader(), cluster.follower());
    let (elsewhere, port) = (cluster.nodes[leader].port, cluster.nodes[at].port);
    let held = cluster.http.grab(elsewhere, "seat");
    let body = json!({
        "name": "seat", "ttl_ms": TTL_MS, "wait_ms": TTL_MS, "request_id": unique(),
    });
    let (http, first) = (Http::new(3 * PATIENCE), body.clone());
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

/// A caller that is told of its grant has its whole lease, although the node that told it is killed
/// right after.
#[test]
fn a_grant_that_was_told_outlives_its_node() {
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
