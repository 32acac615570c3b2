//! Requests as they arrive: many at once, in pieces, inline, malformed.

use super::client;
use crate::support::Node;

#[test]
fn pipeline_is_answered_in_order_including_errors() {
    let node = Node::start();
    let mut redis = client(&node);
    redis.send(&[
        "SET a 1",
        "GET a",
        "NOSUCH",
        "INCR a",
        "PING",
        "SET a 1 2 3",
        "LPUSH a x",
        "ECHO between",
        "SET b x NX PX 60000",
        "SET b y NX PX 60000",
        "GET b",
        "SELECT 1",
        "GET a",
        "SELECT 0",
        "MGET a b",
        "DEL a b",
    ]);
    let received: Vec<String> = (0..16).map(|_| redis.receive()).collect();
    assert_eq!(
        received,
        [
            "OK",
            "1",
            "-ERR unknown command 'NOSUCH', with args beginning with: ",
            "2",
            "PONG",
            "-ERR syntax error",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
            "between",
            "OK",
            "nil",
            "x",
            "OK",
            "nil",
            "OK",
            "[2 x]",
            "2",
        ]
    );
}

/// Pipelined commands are one transaction, however many there are.
#[test]
fn long_pipeline_costs_few_log_entries() {
    let node = Node::start();
    let mut redis = client(&node);
    let before = node.metric("holdfast_requests_total");
    let lines: Vec<String> = (0..1_000).map(|at| format!("SET key-{at} {at}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    redis.send(&lines);
    for _ in 0..1_000 {
        assert_eq!(redis.receive(), "OK");
    }
    let requests = node.metric("holdfast_requests_total") - before;
    assert!(requests < 200.0, "{requests} requests for 1,000 commands");
    assert_eq!(node.metric("holdfast_commands_total{door=\"redis\"}"), 1_000.0);
    assert_eq!(redis.ask("GET key-999"), "999");
    assert_eq!(redis.ask("DBSIZE"), "1000");
}

/// If one of them is refused, the others still run, in order.
#[test]
fn commands_that_cannot_be_joined_run_one_by_one() {
    let node = Node::start();
    node.grab("native");
    let mut redis = client(&node);
    redis.send(&["SET a 1", "SET native x", "APPEND a 2", "EVAL return{1,2} 0", "GET a"]);
    assert_eq!(redis.receive(), "OK");
    assert!(redis.receive().starts_with("-HELD "));
    assert_eq!(redis.receive(), "2");
    assert_eq!(redis.receive(), "[1 2]");
    assert_eq!(redis.receive(), "12");
}

#[test]
fn inline_and_fragmented_commands_work() {
    let node = Node::start();
    let mut redis = client(&node);
    redis.raw(b"SET a \"two words\"\r\n\r\nget a\n");
    assert_eq!((redis.receive(), redis.receive()), ("OK".to_owned(), "two words".to_owned()));
    for byte in b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n" {
        redis.raw(&[*byte]);
    }
    assert_eq!(redis.receive(), "two words");
}

#[test]
fn broken_frame_closes_only_its_connection() {
    let node = Node::start();
    let mut other = client(&node);
    assert_eq!(other.ask("SET a 1"), "OK");
    for (bytes, why) in [
        (&b"*1\r\n$abc\r\n"[..], "-ERR Protocol error: invalid bulk length"),
        (b"*99999999\r\n", "-ERR Protocol error: invalid multibulk length"),
        (b"*1\r\nPING\r\n", "-ERR Protocol error: expected '$', got 'P'"),
        (b"set a \"\r\n", "-ERR Protocol error: unbalanced quotes in request"),
    ] {
        let mut redis = client(&node);
        // Whatever arrived complete before is done.
        redis.send(&["INCR a"]);
        redis.raw(bytes);
        assert!(redis.receive().parse::<u64>().is_ok());
        assert_eq!(redis.receive(), why);
        assert!(redis.is_closed());
    }
    assert_eq!(other.ask("GET a"), "5");
}

#[test]
fn frame_size_is_bounded() {
    let node = Node::start();
    let mut redis = client(&node);
    let long = "x".repeat(4_096);
    assert_eq!(redis.ask_words(&["SET", "long", &long]), "OK");
    assert_eq!(redis.ask("STRLEN long"), "4096");
    assert!(redis.ask_words(&["SET", "longer", &"x".repeat(4_097)]).starts_with("-ERR this value"));
    let big = "x".repeat(400_000);
    assert_eq!(redis.ask_words(&["ECHO", &big]), big);
    assert_eq!(redis.ask("PING"), "PONG");
    redis.raw(b"*2\r\n$4\r\nECHO\r\n$600000\r\n");
    assert_eq!(redis.receive(), "-ERR Protocol error: invalid bulk length");
    assert!(redis.is_closed());
}

/// A browser lets a web page post such a body to any port of this machine.
#[test]
fn commands_in_an_http_post_are_not_run() {
    let node = Node::start();
    let mut other = client(&node);
    for head in ["POST / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: localhost\r\n"] {
        let mut page = client(&node);
        page.raw(format!("{head}Content-Length: 9\r\n\r\nSET a 1\r\n").as_bytes());
        let mut received = page.receive();
        while received.starts_with("-ERR wrong number") {
            received = page.receive();
        }
        assert!(received.starts_with("-ERR this is the port of the Redis protocol"), "{received}");
        assert!(page.is_closed());
        assert_eq!(other.ask("GET a"), "nil");
    }
}
