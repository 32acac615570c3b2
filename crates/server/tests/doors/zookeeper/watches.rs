//! Watches: who hears what, in which order.

use super::client::{Zk, create, get, set};
use super::{client, port};
use crate::support::Node;
use holdfast_core::{NodeKind, NodeOp};
use holdfast_zookeeper::Code;
use holdfast_zookeeper::codec::WatchEventType::{ChildrenChanged, Created, DataChanged, Deleted};
use holdfast_zookeeper::codec::{AddWatchMode, Request, SetWatches, WatcherType};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_watch_fires_once_and_before_the_new_state_is_seen() {
    let node = Node::start();
    let (mut watches, mut writes) = (client(&node), client(&node));
    writes.make("/a");
    watches.get("/a", true).unwrap();
    watches.children("/a", true);
    assert!(!watches.exists("/b", true));
    writes.set("/a", b"1").unwrap();
    writes.set("/a", b"2").unwrap();
    writes.make("/a/c");
    writes.make("/b");
    let (data, _) = watches.get("/a", false).unwrap();
    assert_eq!(data, b"2");
    let heard = watches.events();
    let expected = [(DataChanged, "/a"), (ChildrenChanged, "/a"), (Created, "/b")];
    assert_eq!(heard, expected.map(|(what, path)| (what, path.to_owned())));
}

#[test]
fn client_receives_its_own_watch_event_before_the_reply() {
    let node = Node::start();
    let mut zk = client(&node);
    zk.make("/a");
    zk.get("/a", true).unwrap();
    zk.set("/a", b"new").unwrap();
    assert_eq!(zk.events(), [(DataChanged, "/a".to_owned())]);
}

/// Whatever is pipelined, a reply never shows a change whose event has not come.
#[test]
fn under_load_nobody_sees_a_change_before_it_hears_of_it() {
    let node = Node::start();
    let port = port(&node);
    client(&node).make("/a");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut writes = Zk::open(port, super::LONG_MS).unwrap();
                while !over.load(Ordering::Relaxed) {
                    writes.set("/a", b"x").unwrap();
                }
            });
        }
        let watchers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut reads = Zk::open(port, super::LONG_MS).unwrap();
                    let mut fired = 0;
                    for _ in 0..300 {
                        let (_, before) = reads.get("/a", true).unwrap();
                        reads.events();
                        let (_, after) = reads.get("/a", false).unwrap();
                        let heard = !reads.events().is_empty();
                        assert!(heard || after.version == before.version, "unheard of");
                        fired += usize::from(heard);
                        if !heard {
                            reads.event();
                        }
                    }
                    fired
                })
            })
            .collect();
        let results: Vec<_> = watchers.into_iter().map(|watcher| watcher.join()).collect();
        over.store(true, Ordering::Relaxed);
        for result in results {
            result.unwrap();
        }
    });
}

#[test]
fn a_pipeline_is_answered_in_order() {
    let node = Node::start();
    let mut zk = client(&node);
    let requests: Vec<Request> = (0..300)
        .flat_map(|at| {
            let path = format!("/n-{at}");
            [create(&path, NodeKind::Persistent, false), set(&path, b"1"), get(&path, false)]
        })
        .collect();
    let numbers: Vec<i32> = requests.iter().map(|request| zk.send(request).unwrap()).collect();
    for (number, request) in numbers.into_iter().zip(&requests) {
        zk.reply(number, request).unwrap().unwrap();
    }
}

#[test]
fn persistent_and_recursive_watches_stay() {
    let node = Node::start();
    let (mut zk, mut other) = (client(&node), client(&node));
    other.make("/a");
    let watch = |mode| Request::AddWatch { path: "/a".to_owned(), mode };
    zk.ask(&watch(AddWatchMode::PersistentRecursive)).unwrap();
    other.make("/a/b/c");
    other.set("/a/b/c", b"1").unwrap();
    other.delete("/a/b/c").unwrap();
    let expected =
        [(Created, "/a/b"), (Created, "/a/b/c"), (DataChanged, "/a/b/c"), (Deleted, "/a/b/c")];
    for (what, path) in expected {
        assert_eq!(zk.event(), (what, path.to_owned()));
    }
    let remove = Request::Watches { path: "/a".to_owned(), kind: WatcherType::Any, remove: true };
    zk.ask(&remove).unwrap();
    assert_eq!(zk.ask(&remove), Err(Code::NoWatcher));
    other.make("/a/d");
    zk.sync();
    assert_eq!(zk.events(), []);
}

/// A client that comes back sets its watches again, and hears what it has missed.
#[test]
fn watches_are_set_again_on_another_connection() {
    let node = Node::start();
    let (mut zk, mut other) = (client(&node), client(&node));
    for path in ["/changed", "/gone", "/same"] {
        zk.make(path);
        zk.get(path, true).unwrap();
    }
    let seen = zk.zxid;
    zk.hang_up();
    other.set("/changed", b"x").unwrap();
    other.delete("/gone").unwrap();
    assert!(zk.attach(port(&node)).unwrap());
    let data = ["/changed", "/gone", "/same"].map(str::to_owned).to_vec();
    let set = SetWatches { zxid: seen, data, ..SetWatches::default() };
    zk.ask(&Request::SetWatches(set)).unwrap();
    assert_eq!(zk.events(), [(DataChanged, "/changed".into()), (Deleted, "/gone".into())]);
    other.set("/same", b"x").unwrap();
    assert_eq!(zk.event(), (DataChanged, "/same".into()));
}

/// A watch that is removed behind a change in the same batch still fires for it.
#[test]
fn a_watch_is_removed_after_what_happened_before() {
    let node = Node::start();
    let mut zk = client(&node);
    zk.make("/a");
    let mode = AddWatchMode::PersistentRecursive;
    zk.ask(&Request::AddWatch { path: "/a".to_owned(), mode }).unwrap();
    let change = create("/a/b", NodeKind::Persistent, false);
    let remove = Request::Watches { path: "/a".to_owned(), kind: WatcherType::Any, remove: true };
    let frames = [change.encode(101), remove.encode(102)].concat();
    zk.stream.write_all(&frames).unwrap();
    zk.reply(101, &change).unwrap().unwrap();
    assert_eq!(zk.events(), [(Created, "/a/b".to_owned())]);
    zk.reply(102, &remove).unwrap().unwrap();
}

/// The changes of a multi come together, and so do their events.
#[test]
fn a_multi_is_all_or_nothing() {
    let node = Node::start();
    let (mut zk, mut other) = (client(&node), client(&node));
    zk.children("/", true);
    let node_of = |path: &str| match create(path, NodeKind::Persistent, false) {
        Request::Write { op, stat } => (op, stat),
        _ => unreachable!(),
    };
    let missing = (NodeOp::Delete { path: "/none".into(), version: None }, false);
    other.ask(&Request::Multi(vec![node_of("/a"), missing])).unwrap();
    assert!(!other.exists("/a", false));
    other.ask(&Request::Multi(vec![node_of("/a"), node_of("/b")])).unwrap();
    assert_eq!(zk.event(), (ChildrenChanged, "/".into()));
    assert!(zk.exists("/a", false) && zk.exists("/b", false));
}
