//! Blocking pops: who waits longest gets the next item.

use crate::client;
use crate::support::{Node, eventually};

fn blocked(node: &Node, count: usize) {
    let mut redis = client(node);
    let line = format!("blocked_clients:{count}\r\n");
    eventually("clients wait", || redis.ask("INFO clients").contains(&line).then_some(()));
}

#[test]
fn who_waits_longest_is_served_first() {
    let node = Node::start();
    let mut push = client(&node);
    let mut waiting: Vec<_> = (0..3).map(|_| client(&node)).collect();
    for (at, redis) in waiting.iter_mut().enumerate() {
        redis.send(&["BLPOP other jobs 0"]);
        blocked(&node, at + 1);
    }
    // Two items at once, and one more: each for one of them.
    assert_eq!(push.ask("RPUSH jobs a b"), "2");
    assert_eq!(waiting[0].hear(), "[jobs a]");
    assert_eq!(waiting[1].hear(), "[jobs b]");
    blocked(&node, 1);
    assert_eq!(push.ask("LPUSH other c"), "1");
    assert_eq!(waiting[2].hear(), "[other c]");
    assert_eq!(push.ask("EXISTS jobs other"), "0");
    assert_eq!(waiting[2].ask("PING"), "PONG");
}

#[test]
fn a_wait_ends_with_its_time_or_its_connection() {
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
    // Inside MULTI nobody waits; what is not a list is refused.
    ana.send(&["MULTI", "BLPOP jobs 0", "EXEC", "SET text x", "BLPOP text 0"]);
    for expected in ["OK", "QUEUED", "[nil]", "OK"] {
        assert_eq!(ana.hear(), expected);
    }
    assert!(ana.hear().starts_with("-WRONGTYPE"));
}

/// What was sent behind a wait is done after it.
#[test]
fn requests_behind_a_wait_keep_their_place() {
    let node = Node::start();
    let (mut ana, mut push) = (client(&node), client(&node));
    ana.send(&["SET a 1", "BLPOP jobs 0", "INCR a", "BLPOP jobs 0.01"]);
    assert_eq!(ana.hear(), "OK");
    blocked(&node, 1);
    assert_eq!(push.ask("GET a"), "1");
    assert_eq!(push.ask("RPUSH jobs x"), "1");
    assert_eq!(ana.hear(), "[jobs x]");
    assert_eq!(ana.hear(), "2");
    assert_eq!(ana.hear(), "nil");
}
