//! Replicas compare what they computed.

use crate::by_hand::{Cluster3, start_with};
use holdfast_core::{
    Command, Door, Effect, Element, Expiry, Limits, LockName, Object, State, Transaction, Write,
    WriteOp,
};
use holdfast_node::{Cluster, NodeId, Position};

fn transaction(writes: Vec<(&str, WriteOp)>) -> Command {
    let write = |(name, to)| Write { name: LockName::parse(name).unwrap(), to };
    let (door, seen, seen_all) = (Door::Redis, Vec::new(), None);
    let writes = writes.into_iter().map(write).collect();
    Command::Transact(Transaction { door, seen, seen_all, writes, publish: Vec::new() })
}

/// A state with a list under one name.
fn with_list(name: &str, hash_key: u64) -> State {
    let object = Object::List(vec![Element::parse("item").unwrap()]);
    let list = WriteOp::Object { object, expiry: Expiry::Never, fresh: false };
    let mut state = State::new(Limits::DEFAULT, hash_key);
    state.apply(transaction(vec![(name, list)]).into(), &mut Vec::new());
    state
}

/// The digest ignored what a transaction did: a replica on which it deleted another key, because a
/// bit of a name had flipped there, computed the same digest and went unnoticed.
#[test]
fn diverging_replica_is_stopped() {
    let mut cluster = Cluster3::new(3);
    let members = Cluster::begin((1..=3).map(|id| (NodeId(id), format!("node-{id}"))));
    let begin = Position { index: 1, term: 1 };
    for id in 1..=3 {
        let state = with_list(if id == 3 { "c" } else { "a" }, id);
        cluster.nodes.insert(NodeId(id), start_with(state, id, members.clone(), begin, id));
    }
    cluster.may_stop.insert(NodeId(3));
    let leader = cluster.until_leader();
    let gone = || WriteOp::Gone { forced: false };
    let ask = cluster.ask(leader, transaction(vec![("a", gone()), ("c", gone())]));
    cluster.reply(ask, 1_000);
    cluster.pass(10);
    let deleted: Vec<_> = (cluster.effects.iter())
        .filter_map(|(id, effect)| match effect {
            Effect::ObjectChanged { name, now: None, .. } => Some((id.0, name.to_string())),
            _ => None,
        })
        .collect();
    assert_eq!(deleted.len(), 3, "{deleted:?}");

    // Entries up to the index at which digests are compared.
    while cluster.stopped.is_empty() {
        let leader = cluster.until_leader();
        assert!(cluster.nodes[&leader].applied().index < 3_000, "it was never found");
        cluster.ask(leader, transaction(Vec::new()));
        cluster.pass(2);
    }
    let (id, why) = cluster.stopped.first_key_value().unwrap();
    assert_eq!(*id, NodeId(3));
    assert!(why.contains("result differs from the majority's"), "{why}");
}
