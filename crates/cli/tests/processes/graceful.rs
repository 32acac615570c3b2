//! A leader that is asked to stop leaves nothing undone.

use crate::support::{Cluster, Http, Load, TIMEOUT, eventually};
use serde_json::json;
use std::fs;
use std::path::Path;

/// Would fail if a leader just left and the others had to notice, or if its log were left like
/// after a crash.
#[test]
fn stopping_leader_transfers_leadership_and_closes_its_log() {
    let mut cluster = Cluster::start(3);
    let load = Load::start(4, cluster.ports());
    load.goes_on(20);

    let leader = cluster.leader();
    let status = cluster.nodes[leader].stop();
    let leads = |at: usize| {
        let status = cluster.nodes[at].status(&cluster.http);
        status.is_some_and(|status| status["leader"] == status["node"])
    };
    let handed_over = leads((leader + 1) % 3) || leads((leader + 2) % 3);
    assert!(handed_over, "it ended, and no other node leads: {}", cluster.nodes[leader].printed());
    assert!(status.success(), "{status}: {}", cluster.nodes[leader].printed());
    assert_eq!(last_kind(&cluster.nodes[leader].folder), SYNCED, "its log is not closed");
    assert!(!cluster.nodes[leader].folder.join("pid").exists(), "its pid file is still there");

    load.goes_on(20);
    cluster.nodes[leader].start();
    cluster.all_ready();
    load.goes_on(20);
    load.finish(&cluster.http);
}

/// A node that was stopped gracefully left the waits of its connections in line. They were served
/// soon after, and held the lock for their whole TTL, with nobody to release it.
#[test]
fn waits_end_with_a_stopped_node() {
    let mut cluster = Cluster::start(3);
    let (leader, stops) = (cluster.leader(), cluster.follower());
    let (port, elsewhere) = (cluster.nodes[stops].port, cluster.nodes[leader].port);
    let held = cluster.http.grab(elsewhere, "seat");
    std::thread::scope(|scope| {
        let wait = json!({ "name": "seat", "ttl_ms": 3_600_000, "wait_ms": 3_600_000 });
        let waits = scope.spawn(move || Http::new(TIMEOUT).post(port, "/v1/grab_lock", &wait));
        let waiting = |cluster: &Cluster| {
            cluster.http.get_ok(elsewhere, "/v1/lock?name=seat")["waiting"].as_u64()
        };
        eventually("it waits", || (waiting(&cluster) == Some(1)).then_some(()));
        assert!(cluster.nodes[stops].stop().success());
        assert_eq!(waiting(&cluster), Some(0));
        let answer = waits.join().expect("the thread ends");
        assert!(!answer.is_ok_and(|reply| reply.status == 200), "nobody served it");
    });
    cluster.http.let_go(elsewhere, &held);
    assert!(cluster.http.holders(elsewhere, "seat").is_empty());
}

/// The kind of a record that vouches for all before it; see docs/storage-format.md.
const SYNCED: u64 = 6;

/// The kind of the last record of the log.
fn last_kind(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).expect("the folder can be read");
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let last = names.filter(|name| name.starts_with("log-")).max().expect("there is a log");
    let bytes = fs::read(folder.join(last)).expect("the log can be read");
    let number = |at: usize, length: usize| {
        let digits = bytes[at..at + length].iter().rev();
        digits.fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    let mut at = 32;
    loop {
        let next = at + 40 + (number(at + 12, 4) as usize).next_multiple_of(8);
        if next + 40 > bytes.len() || number(next, 8) == 0 {
            return number(at + 32, 8);
        }
        at = next;
    }
}
