//! Requests whose callers have given up, and requests that can't be accepted at all.

use crate::by_hand::{Cluster3, SECRET, acquire, token};
use holdfast_core::{
    Acquire, Command, Door, Label, Lease, LockName, Mode, Reason, SessionRef, Wait,
};
use holdfast_node::{Busy, Input, NodeId, Reply, RequestTag};

const HOUR_MS: u64 = 3_600_000;

/// A cluster in which "a" is held under token 1.
fn with_a_holder() -> (Cluster3, NodeId, NodeId, SessionRef) {
    let mut cluster = Cluster3::new(3);
    let leader = cluster.until_leader();
    let follower = cluster.others(leader)[0];
    let session = cluster.open(leader, 86_400_000);
    let held = cluster.ask(leader, acquire("a", session, Lease::Permanent));
    assert_eq!(token(&cluster.reply(held, 300)), 1);
    // Makes sure that both nodes have their own session.
    for at in [leader, follower] {
        let ask = cluster.ask(at, acquire(&format!("at-{at}"), session, Lease::Permanent));
        token(&cluster.reply(ask, 2_000));
    }
    (cluster, leader, follower, session)
}

fn force(name: &str) -> Command {
    Command::Force {
        name: LockName::parse(name).unwrap(),
        token: None,
        by: Label::parse("operator").unwrap(),
        reason: Reason::parse("test").unwrap(),
    }
}

fn is_held(cluster: &Cluster3, name: &str) -> bool {
    let name = LockName::parse(name).unwrap();
    let state = cluster.nodes[&cluster.leader().unwrap()].state();
    state.lock_view(&name, 1).is_some_and(|lock| !lock.holders.is_empty())
}

/// A `force` was sent to a node that was cut off. Its caller was told that it may or may not take
/// effect, and left. An hour later the node came back, sent it, and broke the lock of someone who
/// had nothing to do with it.
#[test]
fn unsent_request_is_withdrawn() {
    let (mut cluster, _, follower, _) = with_a_holder();
    cluster.cut.push(follower);
    cluster.pass(3_000);
    assert_eq!(cluster.nodes[&follower].leader(), None);
    let forced = cluster.ask(follower, force("a"));
    cluster.pass(100);
    cluster.input(follower, Input::Withdraw(forced));
    assert_eq!(cluster.reply(forced, 2), Reply::Withdrawn);
    cluster.cut.clear();
    cluster.pass(15_000);
    assert!(is_held(&cluster, "a"));
}

/// The same, but the node had sent it just before it noticed that it was cut off, and TCP kept it
/// for an hour. The others continue meanwhile: the node's session ends, and with it everything that
/// was numbered in it.
#[test]
fn sent_request_dies_with_the_node_session() {
    let (mut cluster, _, follower, session) = with_a_holder();
    let others = cluster.others(follower);
    cluster.hold(others.iter().flat_map(|id| [(*id, follower), (follower, *id)]));
    let forced = cluster.ask(follower, force("a"));
    cluster.pass(10_000);
    cluster.input(follower, Input::Withdraw(forced));
    cluster.pass(10);
    assert!(!cluster.replies.contains_key(&forced), "nobody knows yet");
    cluster.pass_by(HOUR_MS, 50);
    cluster.let_go();
    assert_eq!(cluster.reply(forced, 15_000), Reply::Withdrawn);
    cluster.pass(5_000);
    assert!(is_held(&cluster, "a"));
    // And the node accepts requests again.
    let held = cluster.ask(follower, acquire("b", session, Lease::Permanent));
    token(&cluster.reply(held, 15_000));
}

/// Without a leader no logical time passes: no session ends, however long it takes. What was on its
/// way to the leader of that time is not for the next one, and what its node sends again is a
/// no-op.
#[test]
fn request_sent_to_one_leader_is_not_resent_to_the_next() {
    let (mut cluster, _, follower, session) = with_a_holder();
    let all: Vec<NodeId> = cluster.nodes.keys().copied().collect();
    let links = all.iter().flat_map(|from| all.iter().map(|to| (*from, *to)));
    cluster.hold(links.collect::<Vec<_>>());
    let forced = cluster.ask(follower, force("a"));
    cluster.pass(10_000);
    cluster.input(follower, Input::Withdraw(forced));
    cluster.pass_by(HOUR_MS, 50);
    assert_eq!(cluster.leader(), None);
    // First the next leader is elected; then the network delivers what it held back.
    let late = std::mem::take(&mut cluster.held);
    cluster.holding.clear();
    let leader = cluster.until_leader();
    for (from, to, message) in late {
        if message.word() == "forward" {
            for to in [to, leader] {
                cluster.input(to, Input::Peer { from, message: message.clone() });
            }
        }
    }
    assert_eq!(cluster.reply(forced, 15_000), Reply::Withdrawn);
    cluster.pass(15_000);
    assert!(is_held(&cluster, "a"));
    let held = cluster.ask(follower, acquire("b", session, Lease::Permanent));
    token(&cluster.reply(held, 15_000));
}

/// A number that is left out would hold up every request after it.
#[test]
fn withdrawn_request_leaves_no_gap() {
    let (mut cluster, leader, follower, session) = with_a_holder();
    for at in [leader, follower] {
        let asks: Vec<RequestTag> = (0..30)
            .map(|n| cluster.ask(at, acquire(&format!("{at}-{n}"), session, Lease::Permanent)))
            .collect();
        // Sent, and lost.
        cluster.cut.extend([leader, follower]);
        cluster.turn(at);
        for ask in asks.iter().step_by(3) {
            cluster.input(at, Input::Withdraw(*ask));
        }
        cluster.turn(at);
        cluster.cut.clear();
        for (n, ask) in asks.into_iter().enumerate() {
            match cluster.reply(ask, 20_000) {
                Reply::Withdrawn => {
                    assert_eq!(n % 3, 0);
                    assert!(!is_held(&cluster, &format!("{at}-{n}")));
                }
                reply => {
                    token(&reply);
                    assert!(is_held(&cluster, &format!("{at}-{n}")));
                }
            }
        }
    }
}

/// Reads and heartbeats wait for a leader as well.
#[test]
fn reads_and_heartbeats_are_withdrawn() {
    let (mut cluster, _, follower, session) = with_a_holder();
    cluster.cut.push(follower);
    cluster.pass(3_000);
    let (read, beat) = (cluster.next_ask(), cluster.next_ask());
    cluster.input(follower, Input::Read(read));
    cluster.input(follower, Input::Beat { ask: beat, session });
    cluster.pass(100);
    cluster.input(follower, Input::Withdraw(read));
    cluster.input(follower, Input::Withdraw(beat));
    assert_eq!(cluster.reply(read, 2), Reply::Withdrawn);
    assert_eq!(cluster.reply(beat, 2), Reply::Withdrawn);
}

/// A request larger than a log entry may be was queued, was never sent, and everything behind it
/// waited until the node was restarted.
#[test]
fn oversized_request_is_refused_without_blocking_others() {
    let (mut cluster, leader, follower, session) = with_a_holder();
    let name = |n: usize| LockName::parse(format!("{n:0>500}")).unwrap();
    let wide = |names: usize| {
        Command::Acquire(Acquire {
            names: (0..names).map(name).collect(),
            mode: Mode::Exclusive,
            session: Some(session),
            lease: Lease::Session,
            wait: Wait::Try,
            label: None,
            note: None,
            secret: Some(SECRET),
            claims: Vec::new(),
            lock_delay_ms: 0,
            door: Door::Native,
        })
    };
    for at in [leader, follower] {
        let too_large = cluster.ask(at, wide(2_100));
        let large = cluster.ask(at, wide(2_000));
        let behind = cluster.ask(at, acquire(&format!("behind-{at}"), session, Lease::Session));
        assert_eq!(cluster.reply(too_large, 100), Reply::Busy(Busy::TooLarge));
        // The core has its own limit on names; but the request reached it.
        assert!(matches!(cluster.reply(large, 300), Reply::Answer(Err(_))));
        token(&cluster.reply(behind, 300));
    }
}
