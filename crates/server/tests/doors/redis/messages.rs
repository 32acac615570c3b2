//! Messages reach their subscribers, in order and within bounds.

use super::client;
use crate::support::{Node, eventually};

#[test]
fn subscribers_receive_messages_in_order() {
    let node = Node::start();
    let (mut ana, mut bo, mut publisher) = (client(&node), client(&node), client(&node));
    assert_eq!(publisher.ask("PUBLISH news nobody"), "0");
    assert_eq!(ana.ask("SUBSCRIBE news"), "[subscribe news 1]");
    assert!(bo.ask("HELLO 3").contains("proto 3"));
    bo.send(&["SUBSCRIBE news", "PSUBSCRIBE n?ws x*"]);
    assert_eq!(bo.receive(), ">[subscribe news 1]");
    assert_eq!(bo.receive(), ">[psubscribe n?ws 2]");
    assert_eq!(bo.receive(), ">[psubscribe x* 3]");
    assert_eq!(publisher.ask("PUBSUB NUMSUB news other"), "[news 2 other 0]");
    // A pipeline, a transaction, a script: all in the order in which they were published.
    publisher.send(&["PUBLISH news 0", "MULTI", "PUBLISH news 1", "PUBLISH news 2", "EXEC"]);
    for expected in ["3", "OK", "QUEUED", "QUEUED", "[3 3]"] {
        assert_eq!(publisher.receive(), expected);
    }
    assert_eq!(publisher.ask_words(&["EVAL", "return redis.call('publish','news','3')", "0"]), "3");
    for at in 0..4 {
        assert_eq!(ana.receive(), format!("[message news {at}]"));
        assert_eq!(bo.receive(), format!(">[message news {at}]"));
        assert_eq!(bo.receive(), format!(">[pmessage n?ws news {at}]"));
    }
    // With RESP3 a subscriber may send other commands; with RESP2 it may not.
    assert_eq!(bo.ask("GET a"), "nil");
    assert!(ana.ask("GET a").starts_with("-ERR Can't execute 'get'"));
    assert_eq!(ana.ask("UNSUBSCRIBE"), "[unsubscribe news 0]");
    assert_eq!(ana.ask("GET a"), "nil");
    assert_eq!(publisher.ask("PUBSUB NUMSUB news"), "[news 1]");
    drop(bo);
    eventually("it is forgotten", || (publisher.ask("PUBSUB NUMPAT") == "0").then_some(()));
}

/// A subscriber that does not read is disconnected; the others get every message.
#[test]
fn slow_subscriber_is_disconnected() {
    let node = Node::start();
    let (mut slow, mut ana, mut publisher) = (client(&node), client(&node), client(&node));
    assert_eq!(slow.ask("SUBSCRIBE news"), "[subscribe news 1]");
    assert_eq!(ana.ask("SUBSCRIBE end"), "[subscribe end 1]");
    let line = format!("PUBLISH news {}", "x".repeat(4_000));
    let lot = [line.as_str(); 64];
    let gone = || node.metric("holdfast_connections{door=\"redis\"}") < 3.0;
    for _ in 0..1_000 {
        publisher.send(&lot);
        lot.iter().for_each(|_| drop(publisher.receive()));
        if gone() {
            break;
        }
    }
    eventually("it is gone", || gone().then_some(()));
    assert!(slow.is_closed());
    assert_eq!(publisher.ask("PUBLISH end now"), "1");
    assert_eq!(ana.receive(), "[message end now]");
}
