//! Snapshots that arrive at the wrong moment.

use crate::by_hand::{Cluster3, acquire, node, token};
use holdfast_core::Lease;
use holdfast_node::{Change, Cluster, Input, NodeId, Position, Reply};

/// A snapshot arrived just after another node had been elected: it was on disk, but Raft ignored
/// it, because of the old leader's term. The new leader's own snapshot was older. The node would
/// not accept it, because it had a newer one on disk, and had nothing else to continue from: it
/// stayed behind until the leader's next snapshot.
#[test]
fn snapshot_ignored_by_raft_is_still_usable() {
    let mut cluster = Cluster3::new(3);
    let old = cluster.until_leader();
    let next = cluster.others(old)[0];
    let session = cluster.open(old, 60_000);
    let learner = NodeId(4);
    let change = Change::AddLearner { node: learner, address: "node-4".to_owned() };
    let ask = cluster.next_ask();
    cluster.input(old, Input::Change { ask, change, force: false });
    assert_eq!(cluster.reply(ask, 1_000), Reply::Changed(Ok(())));

    // The next leader's snapshot is older than this one's.
    cluster.keeps_parcels = true;
    cluster.input(next, Input::TakeSnapshot);
    cluster.pass(10);
    let held = cluster.ask(old, acquire("a", session, Lease::Session));
    token(&cluster.reply(held, 100));
    cluster.input(old, Input::TakeSnapshot);
    cluster.pass(10);
    cluster.nodes.insert(learner, node(4, Cluster::default(), Position::default()));
    cluster.pass(300);
    let (_, _, offer) = cluster.parcels.pop().expect("an offer");
    let newer = cluster.load(old);
    cluster.parcels.clear();

    cluster.input(old, Input::Transfer(next));
    cluster.pass(300);
    assert_eq!(cluster.leader(), Some(next));
    let term = cluster.nodes[&learner].term();
    assert_eq!(term, cluster.nodes[&next].term(), "the learner knows the new leader");
    cluster.input(learner, Input::SnapshotReceived { message: offer, loaded: newer });
    cluster.pass(300);
    assert_eq!(cluster.nodes[&learner].applied().index, 0, "it was ignored");

    // The next offer is of an older one; what is on disk is as good.
    let (_, _, offer) = cluster.parcels.pop().expect("another offer");
    let newer = cluster.load(old);
    assert!(offer.snapshot_at() < Some(newer.at));
    cluster.input(learner, Input::SnapshotReceived { message: offer, loaded: newer });
    cluster.input(next, Input::SnapshotSent { to: learner, arrived: true });
    cluster.pass(1_000);
    assert_eq!(cluster.nodes[&learner].applied(), cluster.nodes[&next].applied());
    assert_eq!(cluster.nodes[&learner].digest(), cluster.nodes[&next].digest());
}
