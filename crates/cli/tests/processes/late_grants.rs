//! A wait at a node that learns of its grant too late.

use crate::support::{Cluster, Held, Http, TIMEOUT, eventually};
use rustix::process::Signal;
use serde_json::json;

const ROUNDS: usize = 3;

/// A node was stopped while a client waited for a lock through it. The client was served and its
/// lease ran out before the node was continued and found the grant in its log: it told the client
/// that it holds the lock, which another client held by then.
#[test]
fn expired_grant_is_not_reported_as_held() {
    let mut cluster = Cluster::start(3);
    let (leader, lags) = (cluster.leader(), cluster.follower());
    let (elsewhere, port) = (cluster.nodes[leader].port, cluster.nodes[lags].port);
    for round in 0..ROUNDS {
        let first = cluster.http.grab(elsewhere, "seat");
        // Only a wait that can be found again outlives the session of a stopped node.
        let request_id = crate::support::unique();
        let wait = json!({
            "name": "seat", "ttl_ms": 500, "wait_ms": 600_000, "request_id": request_id,
        });
        let waits =
            std::thread::spawn(move || Http::new(TIMEOUT).post(port, "/v1/grab_lock", &wait));
        eventually("it waits", || {
            let lock = cluster.http.get_ok(elsewhere, "/v1/lock?name=seat");
            (lock["waiting"] == 1).then_some(())
        });
        cluster.nodes[lags].signal(Signal::STOP);
        cluster.http.let_go(elsewhere, &first);
        let next = json!({ "name": "seat", "ttl_ms": 600_000, "wait_ms": 600_000 });
        let next = Held::of("seat", &cluster.http.post_ok(elsewhere, "/v1/grab_lock", &next));
        cluster.nodes[lags].signal(Signal::CONT);
        let told = waits.join().expect("the thread ends").expect("an answer");
        assert_eq!(told.code(), "ended", "round {round}: {} {}", told.status, told.body);
        cluster.http.let_go(elsewhere, &next);
    }
}
