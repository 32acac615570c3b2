//! Membership changes that the leader must refuse.

use crate::by_hand::{Cluster3, node};
use holdfast_node::{Change, Cluster, Input, NodeId, NotChanged, Position, Reply};

fn change(cluster: &mut Cluster3, at: NodeId, change: Change, force: bool) -> Reply {
    let ask = cluster.next_ask();
    cluster.input(at, Input::Change { ask, change, force });
    cluster.reply(ask, 2_000)
}

/// Two of five voters were down, and someone removed one of the three that were up: the remaining
/// two of four were no majority, and the cluster stopped. Only the command line checked; the leader
/// did what it was asked.
#[test]
fn removal_that_loses_the_majority_is_refused() {
    let mut cluster = Cluster3::new(5);
    let leader = cluster.until_leader();
    let others = cluster.others(leader);
    let (down, up) = others.split_at(2);
    cluster.cut.extend(down);
    cluster.pass(2_000);
    let refused = Reply::Changed(Err(NotChanged::NoMajority(down.to_vec())));
    assert_eq!(change(&mut cluster, leader, Change::Remove(up[0]), false), refused);
    // A voter that is down can be removed: then only one of four is down.
    assert_eq!(
        change(&mut cluster, leader, Change::Remove(down[0]), false),
        Reply::Changed(Ok(()))
    );
    cluster.pass(500);
    assert_eq!(cluster.leader(), Some(leader));
    // With `force`, the operator knows better.
    let mut cluster = Cluster3::new(3);
    let leader = cluster.until_leader();
    let others = cluster.others(leader);
    cluster.pass(2_000);
    cluster.cut.push(others[0]);
    cluster.pass(1_200);
    let silent = Reply::Changed(Err(NotChanged::NoMajority(vec![others[0]])));
    assert_eq!(change(&mut cluster, leader, Change::Remove(others[1]), false), silent);
    // It is proposed: no refusal arrives.
    cluster.cut.push(others[1]);
    let ask = cluster.next_ask();
    cluster.input(leader, Input::Change { ask, change: Change::Remove(others[1]), force: true });
    cluster.pass(10);
    assert_eq!(cluster.replies.get(&ask), None);
}

/// The leader only looked at the voters that a change leaves, but the current ones must commit it:
/// of two voters the dead one was removed, in an entry that took effect when it came back.
#[test]
fn uncommittable_change_is_refused_even_by_force() {
    let mut cluster = Cluster3::new(2);
    let leader = cluster.until_leader();
    let other = cluster.others(leader)[0];
    cluster.pass(2_000);
    cluster.cut.push(other);
    cluster.input(leader, Input::HungUp(other));
    let refused = Reply::Changed(Err(NotChanged::NotCommittable(vec![other])));
    for force in [false, true] {
        assert_eq!(change(&mut cluster, leader, Change::Remove(other), force), refused);
    }
    let add = Change::AddLearner { node: NodeId(3), address: "node-3".to_owned() };
    assert_eq!(change(&mut cluster, leader, add, false), refused);
}

/// Another way to the same end: a learner that had caught up and then died got its vote.
#[test]
fn unresponsive_learner_is_not_promoted_if_its_vote_is_needed() {
    let mut cluster = Cluster3::new(1);
    let leader = cluster.until_leader();
    let learner = NodeId(2);
    cluster.nodes.insert(learner, node(2, Cluster::default(), Position::default()));
    let add = Change::AddLearner { node: learner, address: "node-2".to_owned() };
    assert_eq!(change(&mut cluster, leader, add, false), Reply::Changed(Ok(())));
    cluster.pass(2_000);
    cluster.cut.push(learner);
    cluster.pass(1_500);
    let silent = Reply::Changed(Err(NotChanged::NoMajority(vec![learner])));
    assert_eq!(change(&mut cluster, leader, Change::Promote(learner), false), silent);
    cluster.cut.clear();
    cluster.pass(500);
    assert_eq!(
        change(&mut cluster, leader, Change::Promote(learner), false),
        Reply::Changed(Ok(()))
    );
}
