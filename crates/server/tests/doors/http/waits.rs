//! Waits: a long poll, which a retry finds by its request id, and which ends with its connection.

use crate::support::{Node, TIMEOUT, eventually};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

const ID: &str = "0123456789abcdef";

fn wait_for(name: &str, request_id: Option<&str>) -> Value {
    json!({ "name": name, "ttl_ms": 60_000, "wait_ms": 3_600_000, "request_id": request_id })
}

#[test]
fn wait_is_served_in_order_with_the_previous_ending() {
    let node = Node::start();
    let first = node.grab("seat");
    thread::scope(|scope| {
        let waits = scope.spawn(|| node.post("/v1/grab_lock", &wait_for("seat", None)).ok());
        eventually("it waits", || (node.waiting("seat") == 1).then_some(()));
        node.post("/v1/release_lock", &Node::own(&first)).ok();
        let second = waits.join().unwrap();
        assert!(second["fencing_token"].as_u64() > first["fencing_token"].as_u64());
        assert_eq!(second["ended"]["how"], "released");
        assert_eq!(second["ended"]["token"], first["fencing_token"]);
    });
}

#[test]
fn wait_is_refused_after_its_timeout() {
    let node = Node::start();
    node.grab("seat");
    let late = json!({ "name": "seat", "ttl_ms": 60_000, "wait_ms": 50 });
    node.post("/v1/grab_lock", &late).fails(409, "not_acquired");
    assert_eq!(node.waiting("seat"), 0);
}

#[test]
fn repeated_request_finds_its_ticket() {
    let node = Node::start();
    let first = node.grab("seat");
    thread::scope(|scope| {
        let ask = || node.post("/v1/grab_lock", &wait_for("seat", Some(ID))).ok();
        let one = scope.spawn(ask);
        eventually("it waits", || (node.waiting("seat") == 1).then_some(()));
        let other = scope.spawn(ask);
        let outcome = node.post("/v1/outcome", &json!({ "request_id": ID })).ok();
        assert_eq!((&outcome["outcome"], &outcome["place"]), (&json!("waiting"), &json!(1)));
        assert_eq!(node.waiting("seat"), 1, "one ticket, however often it is asked for");
        node.post("/v1/release_lock", &Node::own(&first)).ok();
        let (one, other) = (one.join().unwrap(), other.join().unwrap());
        for field in ["fencing_token", "secret", "names"] {
            assert_eq!(one[field], other[field]);
        }
        assert_eq!(outcome["fencing_token"], one["fencing_token"]);
        assert_eq!(outcome["secret"], one["secret"]);

        let again = node.post("/v1/outcome", &json!({ "request_id": ID })).ok();
        assert_eq!(again["outcome"], "held");
        assert_eq!(again["grant"]["fencing_token"], one["fencing_token"]);
        // A retry never gets a grant that has ended.
        node.post("/v1/release_lock", &Node::own(&one)).ok();
        node.post("/v1/grab_lock", &wait_for("seat", Some(ID))).fails(409, "ended");
        let over = node.post("/v1/outcome", &json!({ "request_id": ID })).ok();
        assert_eq!((&over["outcome"], &over["how"]), (&json!("ended"), &json!("released")));
    });
}

#[test]
fn outcome_query_bars_a_request_that_has_not_arrived() {
    let node = Node::start();
    let outcome = node.post("/v1/outcome", &json!({ "request_id": ID })).ok();
    assert_eq!(outcome, json!({ "outcome": "never" }));
    node.post("/v1/grab_lock", &wait_for("seat", Some(ID))).fails(409, "barred");
}

/// Starts a wait on its own connection.
fn begin_wait(node: &Node, body: &Value) -> std::net::TcpStream {
    let body = body.to_string();
    let mut stream = node.connect();
    let length = body.len();
    write!(
        stream,
        "POST /v1/grab_lock HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    )
    .unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    stream
}

#[test]
fn wait_ends_with_its_connection_unless_it_has_a_request_id() {
    let node = Node::start();
    let first = node.grab("seat");
    let lost = begin_wait(&node, &wait_for("seat", None));
    eventually("it waits", || (node.waiting("seat") == 1).then_some(()));
    drop(lost);
    eventually("it is given up", || (node.waiting("seat") == 0).then_some(()));

    let lost = begin_wait(&node, &wait_for("seat", Some(ID)));
    eventually("it waits", || (node.waiting("seat") == 1).then_some(()));
    drop(lost);
    thread::scope(|scope| {
        let retry = scope.spawn(|| node.post("/v1/grab_lock", &wait_for("seat", Some(ID))).ok());
        node.post("/v1/release_lock", &Node::own(&first)).ok();
        let token = retry.join().unwrap()["fencing_token"].as_u64();
        assert_eq!(token, first["fencing_token"].as_u64().map(|first| first + 2));
    });
}

/// A client pipelined another request behind its wait, or sent any other bytes, and was killed. The
/// server had bytes to read and so did not look for the end of the connection: the wait stayed in
/// line, was served, and held the lock for its whole TTL.
#[test]
fn wait_with_pipelined_bytes_ends_with_its_connection() {
    let node = Node::start();
    let first = node.grab("seat");
    let pipelined = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1_000);
    for more in [pipelined.as_slice(), b"\0garbage", b"\r\n"] {
        let mut lost = begin_wait(&node, &wait_for("seat", None));
        eventually("it waits", || (node.waiting("seat") == 1).then_some(()));
        lost.write_all(more).unwrap();
        drop(lost);
        eventually("it is given up", || (node.waiting("seat") == 0).then_some(()));
    }
    node.post("/v1/release_lock", &Node::own(&first)).ok();
    let lock = node.get("/v1/lock?name=seat").ok();
    assert_eq!(lock["holders"], json!([]), "{lock}");
}

/// So much was sent behind a wait that the kernel accepted no more, and so the end of the
/// connection was never noticed.
#[test]
fn wait_with_too_much_pipelined_is_given_up() {
    let node = Node::start();
    node.grab("seat");
    let mut stuffed = begin_wait(&node, &wait_for("seat", None));
    eventually("it waits", || (node.waiting("seat") == 1).then_some(()));
    stuffed.set_write_timeout(Some(TIMEOUT)).unwrap();
    let until = Instant::now() + TIMEOUT;
    while stuffed.write_all(&[b'x'; 65_536]).is_ok() {
        assert!(Instant::now() < until, "all of it was taken");
    }
    eventually("it is given up", || (node.waiting("seat") == 0).then_some(()));
}

/// A client sent 200 KB behind its wait and closed the connection. The end came after bytes that
/// nobody read, and was found by a check every five seconds; until then the wait could be served to
/// nobody, and hold the lock for its TTL.
#[test]
fn wait_with_an_unobservable_connection_is_given_up() {
    let node = Node::start();
    node.grab("seat");
    let mut lost = begin_wait(&node, &wait_for("seat", None));
    eventually("it waits", || (node.waiting("seat") == 1).then_some(()));
    lost.write_all(&[b'x'; 200_000]).unwrap();
    drop(lost);
    // Less than the five seconds of the check.
    let until = Instant::now() + Duration::from_secs(4);
    while node.waiting("seat") > 0 {
        assert!(Instant::now() < until, "it still stands in line");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A wait over HTTP/2, on its own connection: the preface, empty settings, and one request.
fn begin_http2_wait(node: &Node, body: &Value) -> std::net::TcpStream {
    let path = "/v1/grab_lock";
    // Entries of HPACK's table: POST and http; then the path and the authority as literals.
    let mut head = vec![0x83, 0x86, 0x04, path.len() as u8];
    head.extend_from_slice(path.as_bytes());
    head.extend_from_slice(&[0x01, 9]);
    head.extend_from_slice(b"localhost");
    let body = body.to_string();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    for (kind, flags, stream, payload) in
        [(4, 0, 0, &b""[..]), (1, 4, 1, &head), (0, 1, 1, body.as_bytes())]
    {
        bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
        bytes.extend_from_slice(&[kind, flags, 0, 0, 0, stream]);
        bytes.extend_from_slice(payload);
    }
    let mut stream = node.connect();
    stream.write_all(&bytes).unwrap();
    stream
}

/// An HTTP/2 client sent pings without reading the replies, and closed its sending half. The server
/// could not write, so it stopped reading, and the wait stayed in line and was served.
#[test]
fn wait_of_a_client_that_floods_pings_and_closes_is_given_up() {
    let node = Node::start();
    node.grab("seat");
    for flood_bytes in [0, 100_000, 4_000_000, 40_000_000] {
        let mut lost = begin_http2_wait(&node, &wait_for("seat", None));
        eventually("it waits", || (node.waiting("seat") == 1).then_some(()));
        lost.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let pings = b"\0\0\x08\x06\0\0\0\0\0holdfast".repeat(1_000);
        let mut sent = 0;
        while sent < flood_bytes && lost.write_all(&pings).is_ok() {
            sent += pings.len();
        }
        lost.shutdown(std::net::Shutdown::Write).unwrap();
        eventually("it is given up", || (node.waiting("seat") == 0).then_some(()));
    }
}

#[test]
fn wait_can_be_cancelled_by_its_owner() {
    let node = Node::start();
    node.grab("seat");
    thread::scope(|scope| {
        let waits = scope.spawn(|| node.post("/v1/grab_lock", &wait_for("seat", Some(ID))));
        eventually("it waits", || (node.waiting("seat") == 1).then_some(()));
        let mut own = node.post("/v1/outcome", &json!({ "request_id": ID })).ok();
        let fields = own.as_object_mut().unwrap();
        fields.retain(|field, _| ["fencing_token", "secret"].contains(&field.as_str()));
        fields.insert("name".to_owned(), "seat".into());
        node.post("/v1/release_lock", &own).fails(409, "not_yet_served");
        node.post("/v1/cancel", &own).ok();
        waits.join().unwrap().fails(409, "not_acquired");
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let node = Node::start();
    let first = node.grab("seat");
    let mut stream = begin_wait(&node, &wait_for("seat", None));
    write!(stream, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    eventually("it waits", || (node.waiting("seat") == 1).then_some(()));
    node.post("/v1/release_lock", &Node::own(&first)).ok();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (grant, health) =
        (response.find("fencing_token").unwrap(), response.find("alive").unwrap());
    assert!(grant < health, "{response}");
}

/// Waits whose connections closed within milliseconds stayed in line: the answer "waiting" had been
/// handed to a task that was never polled again, so nothing gave the ticket up. One of them was
/// later served and held the lock for its whole TTL.
#[test]
fn wait_leaves_the_line_whenever_its_connection_closes() {
    let node = Node::start();
    let first = node.grab("seat");
    thread::scope(|scope| {
        for worker in 0..4 {
            let node = &node;
            scope.spawn(move || {
                for round in 0..150_u64 {
                    let lost = begin_wait(node, &wait_for("seat", None));
                    thread::sleep(Duration::from_micros((round * 53 + worker * 17) % 4_000));
                    drop(lost);
                }
            });
        }
    });
    eventually("all are given up", || (node.waiting("seat") == 0).then_some(()));
    node.post("/v1/release_lock", &Node::own(&first)).ok();
    eventually("nobody holds it", || {
        let lock = node.get("/v1/lock?name=seat").ok();
        lock["holders"].as_array().is_some_and(Vec::is_empty).then_some(())
    });
}
