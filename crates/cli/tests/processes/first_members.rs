//! The beginning of a cluster: no first member takes part before all others know its folder.

use crate::support::{Cluster, eventually};
use std::fs;

/// Two of three first members were started, and granted locks. One of them lost its folder, the other
/// was down, and the third was started for the first time. It had never learned which folder belongs
/// to which id, so it let the empty node in: the two were a majority, and granted from token 1 on.
#[test]
fn one_that_lost_its_folder_is_not_taken_for_a_new_first_member() {
    let mut cluster = Cluster::first_members(3);
    for at in [0, 1] {
        cluster.nodes[at].start();
    }
    for at in [0, 1] {
        waits_for(&cluster, at, "waiting for node 3\n");
    }
    cluster.nodes[0].kill();
    cluster.nodes[1].kill();
    fs::remove_dir_all(&cluster.nodes[1].folder).expect("the folder can be removed");

    // Node 3, for the first time, and node 2 with an empty folder.
    for at in [2, 1] {
        cluster.nodes[at].start();
    }
    for at in [2, 1] {
        waits_for(&cluster, at, "waiting for node 1\n");
        let port = cluster.nodes[at].port;
        let ready = cluster.http.get(port, "/readyz");
        assert!(ready.is_ok_and(|reply| reply.status != 200), "two without node 1 serve");
    }

    // Node 1 knows which folder was node 2's.
    cluster.nodes[0].start();
    assert!(!cluster.nodes[1].ended().success());
    let said = cluster.nodes[1].said();
    assert!(said.contains("must not come back under its old id"), "{said}");
    cluster.all_ready();
    cluster.http.grab(cluster.nodes[2].port, "seat");
}

fn waits_for(cluster: &Cluster, at: usize, what: &str) {
    let node = &cluster.nodes[at];
    eventually(what, || node.said().contains(what).then_some(()));
}
