//! The start of a cluster: no first member takes part before all others know its folder.

use crate::support::{Cluster, Node, eventually};
use std::fs;

/// Two of three first members were started, and granted locks. One of them lost its folder, the
/// other was down, and the third was started for the first time. It had never learned which folder
/// belongs to which id, so it let the empty node in: the two were a majority, and granted locks
/// from token 1 on.
#[test]
fn first_member_with_an_empty_folder_is_refused() {
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

    // Node 3 for the first time, and node 2 with an empty folder.
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
    let printed = cluster.nodes[1].printed();
    assert!(printed.contains("must not come back under its old id"), "{printed}");
    cluster.all_ready();
    cluster.http.grab(cluster.nodes[2].port, "seat");
}

/// A cluster started with one member and grew to three. Node 1 lost its folder and was started like
/// the first time, with a list that names only itself: it started a second cluster under the same
/// key, and granted every lock again.
#[test]
fn node_that_started_a_second_cluster_alone_stops_when_found() {
    let mut cluster = Cluster::first_members(1);
    cluster.nodes[0].start();
    cluster.all_ready();
    let first = cluster.nodes[0].peer();
    for _ in 0..2 {
        let at = cluster.add(["--join", &first]);
        cluster.nodes[at].start();
        cluster.all_ready();
    }
    let port = cluster.nodes[1].port;
    eventually("all three vote", || (cluster.voters(port).len() == 3).then_some(()));

    // Under its old id, and under another one at the same address.
    for list in [format!("1={first}"), format!("7={first}")] {
        let id = list.split('=').next().expect("an id").to_owned();
        let _ = cluster.nodes[0].is_running().then(|| cluster.nodes[0].kill());
        fs::remove_dir_all(&cluster.nodes[0].folder).expect("the folder can be removed");
        cluster.nodes[0].replace_members(&id, &list);
        cluster.nodes[0].start();
        assert!(!cluster.nodes[0].ended().success());
        let printed = cluster.nodes[0].printed();
        assert!(printed.contains("began a second cluster"), "{printed}");
        // Nor does it start again.
        cluster.nodes[0].start();
        assert!(!cluster.nodes[0].ended().success());
    }
    cluster.http.grab(port, "seat");
}

/// A cluster of one was restarted with a list of three, and nodes 2 and 3 were started with the
/// same list. Node 1 silently ignored it, but welcomed the other two: they started a second cluster
/// under the same key, which granted every lock again.
#[test]
fn no_second_cluster_starts_beside_a_single_node() {
    let mut cluster = Cluster::first_members(3);
    let list = cluster.nodes[0].args().last().cloned().expect("a list of members");
    let first = format!("1={}", cluster.nodes[0].peer());
    cluster.nodes[0].replace_last_arg(&first);
    cluster.nodes[0].start();
    cluster.all_ready();
    let port = cluster.nodes[0].port;
    let held = cluster.http.grab(port, "seat");
    assert!(cluster.nodes[0].stop().success());

    cluster.nodes[0].replace_last_arg(&list);
    cluster.nodes.iter_mut().for_each(Node::start);
    cluster.nodes[0].ready(&cluster.http);
    assert!(cluster.nodes[0].printed().contains("--members are ignored"));
    for (at, id) in [(1, 2), (2, 3)] {
        let without = format!("the cluster of node 1 has begun without node {id}");
        waits_for(&cluster, at, &without);
        waits_for(&cluster, 0, &without);
        waits_for(&cluster, at, "with --join 127.0.0.1:");
        // Whatever else it waits for.
        waits_for(&cluster, at, "waiting for node 1\n");
        let ready = cluster.http.get(cluster.nodes[at].port, "/readyz");
        assert!(ready.is_ok_and(|reply| reply.status != 200), "a second cluster serves");
    }
    assert_eq!(cluster.http.holders(port, "seat"), [held.token]);
}

/// First members with different lists did not notice: each list started its own cluster.
#[test]
fn first_members_with_different_lists_are_refused() {
    let mut cluster = Cluster::first_members(3);
    let two = format!("1={},2={}", cluster.nodes[0].peer(), cluster.nodes[1].peer());
    cluster.nodes[0].replace_last_arg(&two);
    for at in [0, 1] {
        cluster.nodes[at].start();
    }
    let differ = "must be the same everywhere: node";
    for (at, id) in [(0, 2), (1, 1)] {
        waits_for(&cluster, at, differ);
        waits_for(&cluster, at, "--members 1,2,3");
        waits_for(&cluster, at, &format!("no connection to node {id}: "));
    }
    // As the message says.
    assert!(cluster.nodes[0].stop().success());
    fs::remove_dir_all(&cluster.nodes[0].folder).expect("the folder can be removed");
    let third = format!("{two},3={}", cluster.nodes[2].peer());
    cluster.nodes[0].replace_last_arg(&third);
    for at in [0, 2] {
        cluster.nodes[at].start();
    }
    cluster.all_ready();
    cluster.http.grab(cluster.nodes[0].port, "seat");
}

/// A first member that lost its folder before the cluster had started was told to join. There was
/// nothing to join: the others waited for a node that could not come back.
#[test]
fn first_member_that_lost_its_folder_before_the_start_gets_a_hint() {
    let mut cluster = Cluster::first_members(3);
    for at in [0, 1] {
        cluster.nodes[at].start();
    }
    for at in [0, 1] {
        waits_for(&cluster, at, "waiting for node 3\n");
    }
    cluster.nodes[1].kill();
    fs::remove_dir_all(&cluster.nodes[1].folder).expect("the folder can be removed");
    cluster.nodes[1].start();
    assert!(!cluster.nodes[1].ended().success());
    let printed = cluster.nodes[1].printed();
    assert!(printed.contains("must not come back under its old id"), "{printed}");
    assert!(printed.contains("delete the data folders of all of them"), "{printed}");

    assert!(cluster.nodes[0].stop().success());
    for node in &mut cluster.nodes {
        let _ = fs::remove_dir_all(&node.folder);
        node.start();
    }
    cluster.all_ready();
    cluster.http.grab(cluster.nodes[1].port, "seat");
}

fn waits_for(cluster: &Cluster, at: usize, what: &str) {
    let node = &cluster.nodes[at];
    eventually(what, || node.printed().contains(what).then_some(()));
}
