//! MULTI, EXEC, WATCH.

use super::client;
use crate::support::Node;
use std::thread;

#[test]
fn changed_watched_key_aborts_the_transaction() {
    let node = Node::start();
    let (mut ana, mut bo) = (client(&node), client(&node));
    for (between, expected) in [(true, "nil"), (false, "[OK 2]")] {
        assert_eq!(ana.ask("SET a 1"), "OK");
        assert_eq!(ana.ask("WATCH a"), "OK");
        if between {
            assert_eq!(bo.ask("SET a 5"), "OK");
        }
        ana.send(&["MULTI", "SET b x", "INCR a", "EXEC"]);
        for reply in ["OK", "QUEUED", "QUEUED"] {
            assert_eq!(ana.receive(), reply);
        }
        assert_eq!(ana.receive(), expected);
    }
    assert_eq!(ana.ask("MGET a b"), "[2 x]");
}

#[test]
fn select_inside_exec_applies_afterwards() {
    let node = Node::start();
    let mut redis = client(&node);
    redis.send(&["MULTI", "SELECT 2", "SET a two", "EXEC", "GET a", "SELECT 0", "GET a"]);
    for expected in ["OK", "QUEUED", "QUEUED", "[OK OK]", "two", "OK", "nil"] {
        assert_eq!(redis.receive(), expected);
    }
    redis.send(&["MULTI", "SET a", "SET a 1", "EXEC", "GET a"]);
    assert_eq!(redis.receive(), "OK");
    assert!(redis.receive().starts_with("-ERR wrong number of arguments"));
    assert_eq!(redis.receive(), "QUEUED");
    assert!(redis.receive().starts_with("-EXECABORT"));
    assert_eq!(redis.receive(), "nil");
}

/// Many clients change one counter: every change counts, and none is asked to try again.
#[test]
fn no_counter_increment_is_lost() {
    let node = Node::start();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut redis = client(&node);
                for _ in 0..50 {
                    assert!(redis.ask("INCR counter").parse::<u64>().is_ok());
                }
            });
        }
    });
    assert_eq!(client(&node).ask("GET counter"), "400");
}
