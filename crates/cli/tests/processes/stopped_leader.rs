//! A leader that is stopped for a while, and wakes up believing that it still leads.

use crate::support::{Cluster, Http, tokens};
use rustix::process::Signal;
use serde_json::json;
use std::thread;
use std::time::Duration;

/// Would fail if a leader answered a read, or granted a lock, without asking the others whether it
/// still leads.
#[test]
fn paused_leader_sends_no_stale_events() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let sleeper = cluster.nodes[leader].port;
    let awake = cluster.nodes[(leader + 1) % 3].port;
    let http = &cluster.http;
    let before = http.grab(sleeper, "seat");
    cluster.nodes[leader].signal(Signal::STOP);

    http.let_go(awake, &before);
    let after = http.grab(awake, "seat");
    assert!(after.token > before.token);

    // Sent while it is stopped: these are the first things that it sees when it is continued.
    let ask = |grabs: bool| {
        thread::spawn(move || {
            let http = Http::new(Duration::from_secs(30));
            if grabs {
                http.post(sleeper, "/v1/grab_lock", &json!({ "name": "seat", "ttl_ms": 60_000 }))
            } else {
                http.get(sleeper, "/v1/lock?name=seat")
            }
        })
    };
    let reads: Vec<_> = (0..8).map(|_| ask(false)).collect();
    let grabs: Vec<_> = (0..4).map(|_| ask(true)).collect();
    thread::sleep(Duration::from_millis(300));
    cluster.nodes[leader].signal(Signal::CONT);

    for read in reads {
        // No reply is acceptable.
        if let Ok(reply) = read.join().expect("the thread ends")
            && reply.status == 200
        {
            let holders = tokens(&reply.body["holders"]);
            assert_eq!(holders, [after.token], "an old holder was told: {}", reply.body);
        }
    }
    for grab in grabs {
        if let Ok(reply) = grab.join().expect("the thread ends") {
            assert_ne!(reply.status, 200, "a second holder: {}", reply.body);
        }
    }
    assert_eq!(http.holders(sleeper, "seat"), [after.token]);
}
