//! What a leader may confirm: reads and heartbeats, with messages that arrive late.

use crate::by_hand::{Cluster3, SECRET, acquire, start, token};
use holdfast_core::{Command, Lease, Secret, SessionRef};
use holdfast_node::{Input, PeerMessage, Position, Reply, RequestTag};

/// A leader was cut off, and the others had elected a new one that granted a lock. Meanwhile the
/// old leader, not yet aware of it, asked for a confirmation under its round number 7; and TCP
/// delivered what a slow node had answered, before the partition, to another node's round number 7.
/// The Raft library compares nothing but these bytes, so a stale read was called current, and the
/// heartbeat of a session that had ended was confirmed. Rounds were counted from 1 on every node
/// then.
#[test]
fn late_acknowledgements_of_another_node_confirm_nothing() {
    let mut cluster = Cluster3::new(3);
    let old = cluster.until_leader();
    let [reader, slow] = cluster.others(old)[..] else { panic!("three nodes") };
    let session = cluster.open(old, 60_000);
    cluster.pass(50);

    // Reads at a follower, each in its own round. A majority does not need the slow node.
    cluster.hold([(slow, old)]);
    for _ in 0..30 {
        let ask = cluster.next_ask();
        cluster.input(reader, Input::Read(ask));
        assert_eq!(cluster.reply(ask, 50), Reply::Current);
    }
    let late: Vec<_> = cluster.held.drain(..).map(|(from, _, message)| (from, message)).collect();

    // The old leader is cut off; the others continue without it.
    cluster.cut.push(old);
    for id in [reader, slow] {
        cluster.input(id, Input::HungUp(old));
    }
    let new = cluster.until_leader();
    let held = cluster.ask(new, acquire("a", session, Lease::Deadline { ttl_ms: 60_000 }));
    assert_eq!(token(&cluster.reply(held, 300)), 1);
    let closed = cluster.ask(new, Command::CloseSession(session));
    cluster.reply(closed, 300);
    assert!(cluster.nodes[&old].is_leader(), "it has noticed already");

    // It gets requests now, and then the acknowledgements of another node's rounds.
    let (read, beat) = (cluster.next_ask(), cluster.next_ask());
    cluster.input(old, Input::Read(read));
    cluster.input(old, Input::Beat { ask: beat, session });
    cluster.turn(old);
    for (from, message) in late {
        cluster.input(old, Input::Peer { from, message });
    }
    cluster.turn(old);
    assert_eq!(cluster.nodes[&old].state().counts().holders, 0);
    assert_eq!(cluster.replies.get(&read), None, "a stale read was called current");
    assert_eq!(cluster.replies.get(&beat), None, "a session that has ended was called alive");
}

/// A node was restarted while the leader's confirmation of some heartbeats was on its way to it.
/// Its heartbeat rounds started at 1 again, so that the late message confirmed a later heartbeat of
/// a session that had ended meanwhile.
#[test]
fn late_confirmation_from_before_a_restart_confirms_nothing() {
    let mut cluster = Cluster3::new(3);
    let leader = cluster.until_leader();
    let follower = cluster.others(leader)[0];
    let session = cluster.open(leader, 60_000);
    cluster.pass(10);

    // The leader's replies to some rounds of heartbeats do not arrive; the next ones do.
    let mut late = Vec::new();
    for _ in 0..5 {
        cluster.hold([(leader, follower)]);
        let ask = cluster.next_ask();
        cluster.input(follower, Input::Beat { ask, session });
        cluster.pass(5);
        let is_answer = |message: &PeerMessage| message.word() == "beats-confirmed";
        let held = std::mem::take(&mut cluster.held);
        let (answers, others) = held.into_iter().partition(|(_, _, message)| is_answer(message));
        late.extend::<Vec<_>>(answers);
        cluster.held = others;
        cluster.let_go();
        assert_eq!(cluster.reply(ask, 1_000), Reply::Beat(true));
    }
    assert_eq!(late.len(), 5);

    let (begun, at) = (cluster.nodes[&leader].cluster().clone(), Position { index: 1, term: 1 });
    cluster.nodes.insert(follower, start(follower.0, begun, at, 77));
    let closed = cluster.ask(leader, Command::CloseSession(session));
    cluster.reply(closed, 300);
    // Nothing that it sends arrives. It does not know the session yet.
    cluster.hold([(follower, leader)]);
    cluster.pass(150);
    assert_eq!(cluster.nodes[&follower].leader(), Some(leader));
    for _ in 0..15 {
        let ask = cluster.next_ask();
        cluster.input(follower, Input::Beat { ask, session });
        cluster.turn(follower);
        for (from, _, message) in late.clone() {
            cluster.input(follower, Input::Peer { from, message });
        }
        cluster.turn(follower);
        assert_ne!(cluster.replies.get(&ask), Some(&Reply::Beat(true)));
        // Long enough for the next round, and for the leader's heartbeats.
        for _ in 0..6 {
            cluster.pass_by(100, 100);
        }
    }
}

fn wrong(session: SessionRef) -> SessionRef {
    SessionRef { secret: Secret([9; 16]), ..session }
}

/// A heartbeat with a wrong secret that arrived together with the owner's was answered "alive": the
/// replies of a round were matched by the session's id alone.
#[test]
fn heartbeat_with_a_wrong_secret_is_refused() {
    let mut cluster = Cluster3::new(3);
    let leader = cluster.until_leader();
    let session = cluster.open(leader, 60_000);
    cluster.pass(50);
    for at in [leader, cluster.others(leader)[0]] {
        for order in [[session, wrong(session)], [wrong(session), session]] {
            let asks = order.map(|session| {
                let ask = cluster.next_ask();
                cluster.input(at, Input::Beat { ask, session });
                ask
            });
            for (ask, session) in asks.into_iter().zip(order) {
                assert_eq!(cluster.reply(ask, 300), Reply::Beat(session.secret == SECRET));
            }
        }
    }
}

/// The same at a node that does not know the session yet: it can't tell them apart, and must not
/// guess.
#[test]
fn lagging_node_does_not_judge_secrets() {
    let mut cluster = Cluster3::new(3);
    let leader = cluster.until_leader();
    let [lags, other] = cluster.others(leader)[..] else { panic!("three nodes") };
    cluster.pass(50);
    cluster.hold([(leader, lags)]);
    let session = cluster.open(other, 60_000);
    let asks = [session, wrong(session)].map(|session| {
        let ask = cluster.next_ask();
        cluster.input(lags, Input::Beat { ask, session });
        ask
    });
    cluster.pass(50);
    // The leader's reply to the heartbeats overtakes the entries.
    let late = std::mem::take(&mut cluster.held);
    let (answers, entries): (Vec<_>, Vec<_>) =
        late.into_iter().partition(|(_, _, message)| message.word() == "beats-confirmed");
    assert!(!answers.is_empty());
    for (from, to, message) in answers {
        cluster.input(to, Input::Peer { from, message });
    }
    cluster.turn(lags);
    assert_eq!(cluster.replies.remove(&asks[0]), Some(Reply::Unknown));
    assert_eq!(cluster.replies.remove(&asks[1]), Some(Reply::Unknown));
    cluster.held = entries;
    cluster.let_go();
    cluster.pass(50);
    cluster.input(lags, Input::Beat { ask: RequestTag(900), session });
    assert_eq!(cluster.reply(RequestTag(900), 300), Reply::Beat(true));
}

/// The leader counted every heartbeat before it checked the secret: anyone who knew a session's id,
/// which is a small number, could keep a dead client's locks alive.
#[test]
fn heartbeat_with_a_wrong_secret_keeps_no_session_alive() {
    let mut cluster = Cluster3::new(3);
    let leader = cluster.until_leader();
    let follower = cluster.others(leader)[0];
    let session = cluster.open(follower, 1_000);
    for _ in 0..10 {
        for at in [leader, follower] {
            let ask = cluster.next_ask();
            cluster.input(at, Input::Beat { ask, session: wrong(session) });
        }
        cluster.pass(300);
    }
    let ask = cluster.next_ask();
    cluster.input(follower, Input::Beat { ask, session });
    assert_eq!(cluster.reply(ask, 300), Reply::Beat(false));
}
