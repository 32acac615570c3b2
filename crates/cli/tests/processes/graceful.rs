//! A leader that is asked to stop leaves nothing undone.

use crate::support::{Cluster, Load};
use std::fs;
use std::path::Path;

/// Would fail if a leader just left and the others had to notice, or if the log were left as after
/// a crash.
#[test]
fn a_leader_that_is_stopped_hands_over_and_closes_its_log() {
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
    assert!(handed_over, "it ended, and no other node leads: {}", cluster.nodes[leader].said());
    assert!(status.success(), "{status}: {}", cluster.nodes[leader].said());
    assert_eq!(last_kind(&cluster.nodes[leader].folder), SYNCED, "its log is not closed");
    assert!(!cluster.nodes[leader].folder.join("pid").exists(), "its pid file is still there");

    load.goes_on(20);
    cluster.nodes[leader].start();
    cluster.all_ready();
    load.goes_on(20);
    load.finish(&cluster.http);
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
