//! Topics (locks and channels), and tickets that are taken over.

use crate::bench::{Bench, Script, VirtualSink, WAIT, acquire, effect, granted, lock, publish};
use bytes::Bytes;
use holdfast_core::{
    Acl, Command, Effect, Label, NodeEvent, NodeKind, NodeOp, Reason, Scope, Token, TreeCommand,
    TreeWrite, Wait,
};
use holdfast_gateway::{CallOutcome, Caller, EventQueue, Input, SessionEvent, SinkId, Step, Topic};

fn subscribe(bench: &mut Bench, sink: u64, topics: &[Topic]) {
    let (call, topics) = (bench.next_call(), topics.to_vec());
    let sink = VirtualSink(sink);
    bench.handle(Input::Subscribe { caller: Caller::NODE, call, reply_to: call, sink, topics });
    bench.pass(50);
    assert_eq!(bench.outcome(call), Ok(CallOutcome::Subscribed));
}

fn channel(name: &'static str) -> Topic {
    Topic::Channel(Bytes::from_static(name.as_bytes()))
}

fn pattern(pattern: &'static str) -> Topic {
    Topic::Pattern(Bytes::from_static(pattern.as_bytes()))
}

fn messages(events: &[SessionEvent]) -> Vec<String> {
    let message = |event: &SessionEvent| match event {
        SessionEvent::Published(published) => {
            String::from_utf8(published.message.as_bytes().to_vec()).unwrap()
        }
        other => panic!("{other:?}"),
    };
    events.iter().map(message).collect()
}

#[test]
fn watcher_receives_events_of_its_locks() {
    let mut bench = Bench::new();
    subscribe(&mut bench, 1, &[Topic::Locks(Scope::Prefix(Some(lock("shop/"))))]);
    bench.take("shop/a");
    bench.take("other");
    assert_eq!(bench.events_of(1).len(), 1);
    bench.handle(Input::Close(SinkId(1)));
    bench.take("shop/b");
    assert!(bench.events_of(1).is_empty());
}

#[test]
fn messages_reach_each_subscriber_once_in_order() {
    let mut bench = Bench::new();
    subscribe(&mut bench, 1, &[channel("news"), pattern("n?ws")]);
    subscribe(&mut bench, 2, &[channel("other")]);
    assert_eq!(bench.gateway.channels().subscribers(b"news"), 2);
    assert_eq!(bench.gateway.channels().patterns(), 1);
    for message in ["1", "2"] {
        bench.submit(publish("news", message));
    }
    bench.pass(20);
    assert_eq!(messages(&bench.events_of(1)), ["1", "2"]);
    assert!(bench.events_of(2).is_empty());
    bench.handle(Input::Unsubscribe { sink: SinkId(1), left: vec![pattern("n?ws")] });
    assert_eq!(bench.gateway.channels().subscribers(b"news"), 1);
    bench.handle(Input::Close(SinkId(1)));
    assert_eq!(bench.gateway.channels().subscribers(b"news"), 0);
    assert_eq!(bench.gateway.channels().names().len(), 1);
}

/// Acquires a lock for the connection of this sink.
fn hold(bench: &mut Bench, sink: u64, name: &str, wait: Wait) -> Option<Token> {
    let call = bench.next_call();
    let (request, command, follow) = (None, acquire(name, wait), Some(VirtualSink(sink)));
    bench.handle(Input::Submit {
        caller: Caller::NODE,
        call,
        reply_to: call,
        request,
        command,
        wait: true,
        follow,
    });
    bench.pass(5);
    bench.is_completed(call).then(|| granted(bench.outcome(call)).token)
}

fn take_over(bench: &mut Bench, name: &str, token: Token, by: &str) {
    let (by, reason) = (Label::parse(by).unwrap(), Reason::parse("asked again").unwrap());
    bench.submit(Command::Force { name: lock(name), token: Some(token), by, reason });
    bench.pass(5);
}

#[test]
fn takeover_of_a_ticket_closes_the_previous_connection() {
    let mut bench = Bench::new();
    let first = hold(&mut bench, 1, "a", Wait::Try).unwrap();
    assert_eq!(hold(&mut bench, 2, "a", WAIT), None);
    take_over(&mut bench, "a", first, "ana");
    assert_eq!(bench.closed, [1]);
    bench.pass(20);
    // The second one was served in the meantime. An operator breaks its lock, which is not a
    // takeover in the holder's name: its client learns of it when it renews.
    let second = bench.node.state().lock_view(&lock("a"), 1).unwrap().holders[0].token;
    take_over(&mut bench, "a", second, "operator");
    assert_eq!(bench.closed, [1]);
}

#[test]
fn connection_taking_over_its_own_ticket_stays() {
    let mut bench = Bench::new();
    let token = hold(&mut bench, 1, "a", Wait::Try).unwrap();
    bench.handle(Input::Unfollow { sink: SinkId(1), token });
    take_over(&mut bench, "a", token, "ana");
    assert!(bench.closed.is_empty());
}

#[test]
fn losing_track_closes_connections_that_cannot_be_notified() {
    let mut bench = Bench::new();
    subscribe(&mut bench, 1, &[channel("news")]);
    subscribe(&mut bench, 2, &[Topic::Locks(Scope::Prefix(None))]);
    hold(&mut bench, 3, "a", Wait::Try);
    bench.events.clear();
    bench.gateway.lost_track(bench.now, &bench.node);
    bench.deliver();
    assert_eq!(bench.closed, [1, 3]);
    assert!(matches!(bench.events_of(2)[..], [SessionEvent::LostTrack]));
}

#[test]
fn event_queue_is_bounded() {
    let mut bench = Bench::new();
    subscribe(&mut bench, 1, &[channel("news")]);
    for _ in 0..3 {
        bench.submit(publish("news", "12345"));
    }
    bench.pass(20);
    let events = bench.events_of(1);
    let mut by_number = EventQueue::new(2, 1_000);
    let taken: Vec<bool> = events.iter().map(|event| by_number.push(event.clone())).collect();
    assert_eq!((taken, by_number.has_overflowed()), (vec![true, true, false], true));
    let mut by_bytes = EventQueue::new(100, 10);
    let taken: Vec<bool> = events.into_iter().map(|event| by_bytes.push(event)).collect();
    assert_eq!((taken, by_bytes.bytes()), (vec![true, true, false], 18));
    by_bytes.pop();
    assert_eq!(by_bytes.bytes(), 9);
}

/// A door with its own watches is notified of every change to a znode before a task that made or
/// saw the change returns.
#[test]
fn znode_events_precede_the_results_that_saw_them() {
    let mut bench = Bench::new();
    subscribe(&mut bench, 1, &[Topic::Znodes]);
    let session = bench.open(2);
    let (path, acl) = ("/a".to_owned(), vec![Acl::open()]);
    let (data, kind, sequential) = (None, NodeKind::Persistent, false);
    let ops = vec![NodeOp::Create { path, data, acl, kind, sequential }];
    let write = TreeWrite { session, attachment: 0, ids: Vec::new(), ops };
    let create = Command::Tree(TreeCommand::Write(write));
    bench.start(Script::new("create", [Step::Submit(create)]), None);
    for _ in 0..100 {
        bench.now += std::time::Duration::from_millis(1);
        bench.turn();
        let received = bench.events.iter().any(|(sink, event)| {
            let created = |effect: &Effect| {
                matches!(effect, Effect::NodeChanged { what: NodeEvent::Created, .. })
            };
            *sink == 1 && effect(event).is_some_and(created)
        });
        if received || !bench.finished.is_empty() {
            break;
        }
    }
    let received = bench.events_of(1);
    assert_eq!(received.len(), 1, "the task came back first, or nothing came: {received:?}");
    bench.pass(5);
    assert_eq!(bench.finished.len(), 1);
    // The session's end is an event too; events of locks are not sent here.
    bench.take("a");
    bench.submit(Command::CloseSession(session));
    bench.pass(5);
    let received = bench.events_of(1);
    let ended = received.iter().filter_map(effect);
    let ended: Vec<_> = ended.filter(|e| matches!(e, Effect::SessionEnded { .. })).collect();
    assert_eq!((received.len(), ended.len()), (1, 1), "{received:?}");
}

/// A door listens before its node knows a leader: it can't miss any of its clients' sessions.
#[test]
fn a_listener_hears_everything_from_the_moment_it_asks() {
    let mut bench = Bench::without_leader();
    bench.handle(Input::Listen { sink: VirtualSink(1), topics: vec![Topic::Znodes] });
    bench.lead();
    let session = bench.open(2);
    bench.submit(Command::CloseSession(session));
    bench.pass(5);
    let received = bench.events_of(1);
    let ended = received
        .iter()
        .filter_map(effect)
        .any(|effect| matches!(effect, Effect::SessionEnded { .. }));
    assert!(ended, "{received:?}");
}
