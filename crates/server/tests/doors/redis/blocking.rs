//! Blocking pops: the client that has waited longest gets the next item.

use super::client;
use crate::support::{Node, eventually};

fn blocked(node: &Node, count: usize) {
    let mut redis = client(node);
    let line = format!("blocked_clients:{count}\r\n");
    eventually("clients wait", || redis.ask("INFO clients").contains(&line).then_some(()));
}

#[test]
fn longest_waiting_client_is_served_first() {
    let node = Node::start();
    let mut push = client(&node);
    let mut waiting: Vec<_> = (0..3).map(|_| client(&node)).collect();
    for (at, redis) in waiting.iter_mut().enumerate() {
        redis.send(&["BLPOP other jobs 0"]);
        blocked(&node, at + 1);
    }
    // Two items at once, then one more: one for each client.
    assert_eq!(push.ask("RPUSH jobs a b"), "2");
    assert_eq!(waiting[0].receive(), "[jobs a]");
    assert_eq!(waiting[1].receive(), "[jobs b]");
    blocked(&node, 1);
    assert_eq!(push.ask("LPUSH other c"), "1");
    assert_eq!(waiting[2].receive(), "[other c]");
    assert_eq!(push.ask("EXISTS jobs other"), "0");
    assert_eq!(waiting[2].ask("PING"), "PONG");
}

#[test]
fn wait_ends_with_its_timeout_or_connection() {
    let node = Node::start();
    let (mut ana, mut push) = (client(&node), client(&node));
    assert_eq!(ana.ask("BLPOP jobs 0.05"), "nil");
    let mut gone = client(&node);
    gone.send(&["BLPOP jobs 0"]);
    blocked(&node, 1);
    drop(gone);
    blocked(&node, 0);
    assert_eq!(push.ask("RPUSH jobs a"), "1");
    assert_eq!(ana.ask("BRPOP jobs 0"), "[jobs a]");
    // Nothing blocks inside MULTI; a key that is not a list is refused.
    ana.send(&["MULTI", "BLPOP jobs 0", "EXEC", "SET text x", "BLPOP text 0"]);
    for expected in ["OK", "QUEUED", "[nil]", "OK"] {
        assert_eq!(ana.receive(), expected);
    }
    assert!(ana.receive().starts_with("-WRONGTYPE"));
}

/// Requests sent behind a wait are handled after it.
#[test]
fn requests_behind_a_wait_stay_in_order() {
    let node = Node::start();
    let (mut ana, mut push) = (client(&node), client(&node));
    ana.send(&["SET a 1", "BLPOP jobs 0", "INCR a", "BLPOP jobs 0.01"]);
    assert_eq!(ana.receive(), "OK");
    blocked(&node, 1);
    assert_eq!(push.ask("GET a"), "1");
    assert_eq!(push.ask("RPUSH jobs x"), "1");
    assert_eq!(ana.receive(), "[jobs x]");
    assert_eq!(ana.receive(), "2");
    assert_eq!(ana.receive(), "nil");
}

/// A client sent 84 KB of other requests behind a wait and then hung up. Nothing was read after the
/// first 64 KiB, so the end of the connection went unnoticed: the lock was granted to a client that
/// was gone, items were popped for it, and the connection was kept forever.
#[test]
fn wait_ends_with_its_connection_despite_pipelined_bytes() {
    let node = Node::start();
    let (mut push, mut holder) = (client(&node), client(&node));
    let behind = b"*1\r\n$4\r\nPING\r\n".repeat(6_000);
    let mut gone = client(&node);
    gone.send(&["BLPOP jobs 0"]);
    gone.raw(&behind);
    blocked(&node, 1);
    drop(gone);
    blocked(&node, 0);
    assert_eq!(push.ask("RPUSH jobs a"), "1");
    assert_eq!(push.ask("LPOP jobs"), "a");

    let owner = holder.ask("HOLDFAST.OWNERID");
    let held = holder.ask(&format!("HOLDFAST.ACQUIRE lock {owner} TTL 60000"));
    let token = held.trim_start_matches('[').split([' ', ']']).next().unwrap().to_owned();
    let mut gone = client(&node);
    let other = gone.ask("HOLDFAST.OWNERID");
    gone.send(&[&format!("HOLDFAST.ACQUIRE lock {other} TTL 60000 WAIT 600000")]);
    gone.raw(&behind);
    drop(gone);
    let clients = |redis: &mut super::resp::Redis| redis.ask("CLIENT LIST").lines().count();
    eventually("the connection is gone", || (clients(&mut push) == 2).then_some(()));
    assert_eq!(holder.ask(&format!("HOLDFAST.RELEASE lock {owner} {token}")), "1");
    let owner = push.ask("HOLDFAST.OWNERID");
    let granted = push.ask(&format!("HOLDFAST.ACQUIRE lock {owner} TTL 1000 WAIT 5000"));
    assert!(granted.starts_with('['), "{granted}");
}

/// A client that sends more than can be kept behind a wait is told so: if the server stopped
/// reading, it would not notice the client hang up.
#[test]
fn too_much_pipelined_behind_a_wait_closes_the_connection() {
    let node = Node::start();
    let mut redis = client(&node);
    redis.send(&["BLPOP jobs 0"]);
    blocked(&node, 1);
    // The socket may be closed before everything is sent.
    let _ = redis.try_raw(&b"*1\r\n$4\r\nPING\r\n".repeat(80_000));
    blocked(&node, 0);
}
