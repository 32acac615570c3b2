//! Clients that take more than their share.

use crate::client;
use crate::support::Node;

/// Its replies are not kept for it without a bound: it is not read on until it reads.
#[test]
fn one_that_does_not_read_does_not_hold_up_the_others() {
    let node = Node::start();
    let mut greedy = client(&node);
    let long = "x".repeat(4_000);
    assert_eq!(greedy.ask_words(&["SET", "long", &long]), "OK");
    let count = 20_000;
    std::thread::scope(|scope| {
        let mut writes = client(&node);
        let (begun, begins) = std::sync::mpsc::channel();
        let sends = scope.spawn(move || {
            for at in 0..count {
                writes.send(&["GET long"]);
                if at == 1_000 {
                    begun.send(()).unwrap();
                }
                if at % 1_000 == 999 {
                    // By and by it reads after all, so that it can go on writing.
                    for _ in 0..1_000 {
                        assert_eq!(writes.hear().len(), 4_000);
                    }
                }
            }
        });
        begins.recv().unwrap();
        let mut other = client(&node);
        for at in 0..100 {
            assert_eq!(other.ask(&format!("SET mine {at}")), "OK");
        }
        sends.join().unwrap();
    });
}

#[test]
fn subscriptions_of_a_connection_have_a_bound() {
    let node = Node::start();
    let mut redis = client(&node);
    assert!(redis.ask("HELLO 3").contains("proto"));
    let names: Vec<String> = (0..1_024).map(|at| format!("channel-{at}")).collect();
    redis.send(&[&format!("SUBSCRIBE {}", names.join(" "))]);
    for at in 1..=1_024 {
        assert!(redis.hear().ends_with(&format!(" {at}]")));
    }
    assert_eq!(redis.ask("SUBSCRIBE more"), "-ERR too many subscriptions on one connection");
    assert_eq!(redis.ask("PING"), "PONG");
}

#[test]
fn too_large_a_transaction_is_refused_and_the_connection_stays() {
    let node = Node::start();
    let mut redis = client(&node);
    let keys: Vec<String> = (0..600).map(|at| format!("k{at} v")).collect();
    assert!(redis.ask(&format!("MSET {}", keys.join(" "))).starts_with("-ERR"));
    assert_eq!(redis.ask("EXISTS k0"), "0");
    assert_eq!(redis.ask("PING"), "PONG");
}
