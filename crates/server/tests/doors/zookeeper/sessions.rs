//! Sessions: opened, taken along to another connection, expired, closed.

use super::client::{connect, create, new_session};
use super::{LONG_MS, client, port};
use crate::support::{Node, eventually};
use holdfast_core::NodeKind;
use holdfast_zookeeper::codec::{Connect, Request};
use std::time::Duration;

#[test]
fn a_session_has_the_timeout_that_it_asks_for_within_bounds() {
    let node = Node::start();
    for (asked, given) in [(10_000, 10_000), (1, 1_000), (i32::MAX, 120_000), (-5, 1_000)] {
        let (_, connected) = connect(port(&node), &new_session(asked)).unwrap();
        assert_eq!(connected.timeout_ms, given, "{asked}");
        assert_ne!(connected.session, 0);
        assert_ne!(connected.password, [0; 16]);
        assert_eq!(connected.read_only, Some(false));
    }
    // Old clients do not say whether a server that only reads would do, and are not told.
    let old = Connect { read_only: None, ..new_session(LONG_MS) };
    assert_eq!(connect(port(&node), &old).unwrap().1.read_only, None);
}

#[test]
fn a_session_goes_on_through_another_connection() {
    let node = Node::start();
    let mut zk = client(&node);
    zk.make("/seat");
    let (path, token) = zk.contend("/seat", "x__lock__").unwrap();
    zk.hang_up();
    assert!(zk.attach(port(&node)).unwrap());
    assert_eq!(zk.get(&path, false).unwrap().1.czxid, token);
    assert_eq!(zk.get(&path, false).unwrap().1.ephemeral_owner, zk.session);
    zk.delete(&path).unwrap();
}

#[test]
fn the_connection_that_a_session_has_left_is_closed() {
    let node = Node::start();
    let mut zk = client(&node);
    let again = zk.again();
    let (_kept, connected) = connect(port(&node), &again).unwrap();
    assert_eq!(connected.session, zk.session);
    assert!(zk.is_closed());
}

#[test]
fn a_session_that_is_not_there_is_told_so() {
    let node = Node::start();
    let mut zk = client(&node);
    let (session, password) = (zk.session, zk.password);
    for (other, wrong) in [(session + 1_000, password), (session, [7; 16]), (-1, password)] {
        (zk.session, zk.password) = (other, wrong);
        assert!(!zk.attach(port(&node)).unwrap());
    }
    (zk.session, zk.password) = (session, password);
    assert!(zk.attach(port(&node)).unwrap());
    assert!(zk.ask(&Request::CloseSession).is_ok());
    assert!(zk.is_closed());
    assert!(!zk.attach(port(&node)).unwrap());
}

/// A client that has seen a state that this node does not have must look for another node.
#[test]
fn a_client_from_the_future_is_sent_away() {
    let node = Node::start();
    let zk = client(&node);
    let ahead = Connect { last_zxid: 1 << 50, ..zk.again() };
    assert!(connect(port(&node), &ahead).is_err());
}

#[test]
fn silence_ends_a_session_and_its_connection() {
    let node = Node::start();
    let mut silent = super::Zk::open(port(&node), 1_000).unwrap();
    let mut pings = super::Zk::open(port(&node), 3_000).unwrap();
    let mut other = client(&node);
    silent.create("/silent", NodeKind::Ephemeral, false).unwrap();
    pings.create("/pings", NodeKind::Ephemeral, false).unwrap();
    eventually("the silent one's znode goes", || {
        pings.ping().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        (!other.exists("/silent", false)).then_some(())
    });
    assert!(silent.is_closed());
    assert!(!silent.attach(port(&node)).unwrap());
    for _ in 0..20 {
        pings.ping().unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(other.exists("/pings", false));
    // Requests are heartbeats too.
    for _ in 0..40 {
        pings.exists("/pings", false);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(other.exists("/pings", false));
}

/// What a session leaves behind goes when it is closed, and what it has asked for is answered first.
#[test]
fn a_pipeline_that_ends_with_a_close_is_answered() {
    let node = Node::start();
    let mut zk = client(&node);
    let mine = create("/mine", NodeKind::Ephemeral, false);
    let numbers: Vec<i32> = [&mine, &Request::CloseSession].map(|r| zk.send(r).unwrap()).to_vec();
    assert!(zk.reply(numbers[0], &mine).unwrap().is_ok());
    assert!(zk.reply(numbers[1], &Request::CloseSession).unwrap().is_ok());
    assert!(zk.is_closed());
    assert!(!client(&node).exists("/mine", false));
}

#[test]
fn sessions_survive_a_restart_of_nothing_but_their_connections() {
    let node = Node::start();
    let mut clients: Vec<_> = (0..50).map(|_| client(&node)).collect();
    for (at, zk) in clients.iter_mut().enumerate() {
        zk.create(&format!("/of-{at}"), NodeKind::Ephemeral, false).unwrap();
        zk.hang_up();
    }
    for zk in &mut clients {
        assert!(zk.attach(port(&node)).unwrap());
    }
    let mut other = client(&node);
    assert!((0..50).all(|at| other.exists(&format!("/of-{at}"), false)));
}
