//! Members come and go while clients are served.

use crate::support::{Cluster, Load, Node, eventually};
use rustix::process::Signal;
use serde_json::json;
use std::time::Duration;

/// Would fail if a change of members lost a grant or stopped the service, if a new member did not
/// get its vote, or if a removed one kept running.
#[test]
fn cluster_grows_to_five_and_shrinks_to_three() {
    let mut cluster = Cluster::start(1);
    let load = Load::start(4, cluster.ports());
    load.goes_on(20);
    for voters in 2..=5 {
        join(&mut cluster);
        assert_eq!(cluster.voters(cluster.nodes[0].port).len(), voters);
        load.ask(cluster.ports());
        load.goes_on(20);
    }

    let follower = cluster.follower();
    transfer(&cluster, follower);
    assert_eq!(cluster.leader(), follower);
    load.goes_on(20);

    // The leader and a follower: each says why it stops.
    for at in [follower, (follower + 1) % 5] {
        let asked = cluster.nodes[(at + 2) % 5].port;
        let id = cluster.nodes[at].id(&cluster.http);
        let running = cluster.ports();
        let left = running.into_iter().filter(|port| *port != cluster.nodes[at].port);
        load.ask(left.collect());
        cluster.http.post_ok(asked, "/v1/members/remove", &json!({ "node": id }));
        assert!(!cluster.voters(asked).contains(&id));
        must_end_as_removed(&mut cluster, at);
        load.goes_on(20);
    }
    // Restarted, it is told again.
    cluster.nodes[follower].start();
    must_end_as_removed(&mut cluster, follower);

    let port = cluster.ports()[0];
    assert_eq!(cluster.voters(port).len(), 3);
    load.goes_on(20);
    load.finish(&cluster.http);
}

/// Would fail if the dead member's vote were still needed, or if the new one's did not count: after
/// the replacement another node dies.
#[test]
fn dead_node_is_replaced() {
    let mut cluster = Cluster::start(3);
    let load = Load::start(4, cluster.ports());
    load.goes_on(20);
    let dead = cluster.follower();
    let id = cluster.nodes[dead].id(&cluster.http);
    cluster.nodes[dead].kill();
    let new = join(&mut cluster);
    let port = cluster.ports()[0];
    cluster.http.post_ok(port, "/v1/members/remove", &json!({ "node": id }));
    load.ask(cluster.ports());

    let leader = cluster.leader();
    assert_ne!(leader, dead);
    let second = (0..3).find(|at| ![dead, new].contains(at)).expect("one of the first is left");
    cluster.nodes[second].kill();
    load.goes_on(20);
    cluster.nodes[second].start();
    cluster.all_ready();
    load.finish(&cluster.http);
}

/// Would fail if a node that nobody has ever heard from could get a vote: the majority would then
/// need it.
#[test]
fn learner_that_never_started_is_not_promoted() {
    let mut cluster = Cluster::start(3);
    let port = cluster.ports()[0];
    let added = cluster.http.post_ok(port, "/v1/members/add", &json!({ "address": "127.0.0.1:1" }));
    let id = added["node"].as_u64().expect("a new member has an id");
    let listed = cluster.http.get_ok(port, "/v1/members");
    let learner = json!({ "id": id, "address": "127.0.0.1:1", "votes": false });
    assert!(listed["members"].as_array().is_some_and(|all| all.contains(&learner)), "{listed}");

    let reply = cluster.http.post(port, "/v1/members/promote", &json!({ "node": id }));
    let reply = reply.expect("the leader answers");
    assert_eq!(reply.status, 409, "{}", reply.body);
    assert_eq!(cluster.voters(port), [1, 2, 3]);
    cluster.http.post_ok(port, "/v1/members/remove", &json!({ "node": id }));
    cluster.http.grab(port, "seat");
}

/// A new member whose reply was lost asked again and got a second id. The first one stayed a member
/// without a node, for good, and no behaviour level could rise any more.
#[test]
fn repeated_join_leaves_no_orphaned_member() {
    let mut cluster = Cluster::start(3);
    let port = cluster.ports()[0];
    let at = cluster.add(["--join", &cluster.nodes[0].peer()]);
    let add = json!({ "address": cluster.nodes[at].peer() });
    let lost = cluster.http.post_ok(port, "/v1/members/add", &add);
    assert_eq!(cluster.http.post_ok(port, "/v1/members/add", &add), lost);
    // Killed at some point, and restarted.
    for ms in [5, 10, 20, 40, 80, 160] {
        cluster.nodes[at].start();
        std::thread::sleep(Duration::from_millis(ms));
        cluster.nodes[at].kill();
    }
    cluster.nodes[at].start();
    cluster.nodes[at].ready(&cluster.http);
    assert_eq!(lost["node"], cluster.nodes[at].id(&cluster.http));
    eventually("the new member votes", || (cluster.voters(port) == [1, 2, 3, 4]).then_some(()));
    let listed = cluster.http.get_ok(port, "/v1/members");
    assert_eq!(listed["members"].as_array().map(Vec::len), Some(4), "{listed}");

    // The reply to a removal may be lost, too.
    for _ in 0..2 {
        let reply = cluster.http.post(port, "/v1/members/remove", &json!({ "node": 4 }));
        assert_eq!(reply.expect("the leader answers").status, 200);
    }
}

/// Both were offered the same id, and one of them gave up.
#[test]
fn concurrent_joins_get_different_ids() {
    let mut cluster = Cluster::start(1);
    let peer = cluster.nodes[0].peer();
    let port = cluster.nodes[0].port;
    for _ in 0..4 {
        cluster.add(["--join", &peer]);
    }
    cluster.nodes.iter_mut().skip(1).for_each(Node::start);
    cluster.all_ready();
    eventually("all vote", || (cluster.voters(port) == [1, 2, 3, 4, 5]).then_some(()));
    let mut ids: Vec<u64> = cluster.nodes.iter().map(|node| node.id(&cluster.http)).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4, 5]);
}

/// A node that was stopped while it was removed never learned of it: the others had closed their
/// connections to it, but left its own open, so it had no reason to reconnect. It kept running, and
/// asking for votes, until someone restarted it.
#[test]
fn node_removed_while_it_was_stopped_exits() {
    let mut cluster = Cluster::start(5);
    for _ in 0..2 {
        let at = cluster.follower();
        let leader = cluster.leader();
        let (port, id) = (cluster.nodes[leader].port, cluster.nodes[at].id(&cluster.http));
        cluster.nodes[at].signal(Signal::STOP);
        // More entries than may be in flight to one node: it is not sent its own removal.
        for number in 0..150 {
            cluster.http.grab(port, &format!("seat-{id}-{number}"));
        }
        cluster.http.post_ok(port, "/v1/members/remove", &json!({ "node": id }));
        cluster.nodes[at].signal(Signal::CONT);
        must_end_as_removed(&mut cluster, at);
    }
}

/// The leader looked only at the voters that a removal would leave. Of two voters one was dead, and
/// its removal was appended although it can't be committed without it: the command hung, and the
/// node was removed as soon as it came back.
#[test]
fn refused_removal_of_a_dead_voter_has_no_later_effect() {
    let mut cluster = Cluster::start(2);
    for force in [false, true] {
        let dead = cluster.follower();
        let port = cluster.nodes[1 - dead].port;
        cluster.nodes[dead].kill();
        let remove = json!({ "node": dead + 1, "force": force });
        let reply = cluster.http.post(port, "/v1/members/remove", &remove).expect("an answer");
        assert_eq!(reply.code(), "not_changed", "{}", reply.body);
        let printed = reply.body.to_string();
        assert!(printed.contains("the members can't be changed"), "{printed}");
        assert!(printed.contains("restore a backup"), "{printed}");

        cluster.nodes[dead].start();
        cluster.all_ready();
        cluster.http.grab(port, &format!("seat-{force}"));
        assert_eq!(cluster.voters(port), [1, 2]);
    }
}

/// A leader that was to be removed, and that nobody took over from in time, reported that the last
/// voter can't be removed: with three voters.
#[test]
fn failed_leadership_transfer_is_reported() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let others: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
    for at in &others {
        cluster.nodes[*at].signal(Signal::STOP);
    }
    let (port, remove) = (cluster.nodes[leader].port, json!({ "node": leader + 1 }));
    let reply = cluster.http.post(port, "/v1/members/remove", &remove).expect("an answer");
    let printed = reply.body.to_string();
    assert_eq!(reply.code(), "not_changed", "{printed}");
    // If this machine was slow, it no longer leads when it is asked.
    let reasons = ["did not take over", "the members can't be changed"];
    assert!(reasons.iter().any(|why| printed.contains(why)), "{printed}");
    for at in &others {
        cluster.nodes[*at].signal(Signal::CONT);
    }
    cluster.all_ready();
    assert_eq!(cluster.voters(port), [1, 2, 3]);
}

/// A leader that was to be removed handed over to the voter with the longest log, though that one
/// was dead.
#[test]
fn leader_is_removed_while_another_voter_is_dead() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let dead = (0..3).rev().find(|at| *at != leader).expect("there are others");
    let port = cluster.nodes[3 - leader - dead].port;
    cluster.nodes[dead].kill();
    // With force: of the two that are left, one is dead.
    let remove = json!({ "node": leader + 1, "force": true });
    cluster.http.post_ok(port, "/v1/members/remove", &remove);
    must_end_as_removed(&mut cluster, leader);
    cluster.nodes[dead].start();
    cluster.all_ready();
    assert_eq!(cluster.voters(port).len(), 2);
}

/// One more node, with its vote.
pub(crate) fn join(cluster: &mut Cluster) -> usize {
    let peers: Vec<String> = {
        let running = cluster.nodes.iter_mut().filter_map(|n| n.is_running().then(|| n.peer()));
        running.collect()
    };
    let at = cluster.add(["--join", &peers.join(",")]);
    cluster.nodes[at].start();
    cluster.nodes[at].ready(&cluster.http);
    let id = cluster.nodes[at].id(&cluster.http);
    let asked = cluster.ports()[0];
    eventually("the new member votes", || cluster.voters(asked).contains(&id).then_some(()));
    at
}

fn transfer(cluster: &Cluster, to: usize) {
    let id = cluster.nodes[to].id(&cluster.http);
    let asked = cluster.nodes[(to + 1) % cluster.nodes.len()].port;
    cluster.http.post_ok(asked, "/v1/members/transfer", &json!({ "node": id }));
}

fn must_end_as_removed(cluster: &mut Cluster, at: usize) {
    let status = cluster.nodes[at].ended();
    let printed = cluster.nodes[at].printed();
    assert!(!status.success(), "it ended as if all were well: {printed}");
    assert!(printed.contains("holdfast: this node was removed from the cluster"), "{printed}");
}
