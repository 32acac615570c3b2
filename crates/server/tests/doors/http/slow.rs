//! Slow, torn and endless requests: each one ends, and the server keeps running.

use crate::support::Node;
use serde_json::json;
use std::io::{Read, Write};

/// Everything received until the other side closes the connection.
fn read_response(mut stream: impl Read) -> String {
    let mut response = Vec::new();
    // A reset counts as closed.
    let _ = stream.read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

#[test]
fn missing_body_times_out() {
    let node = Node::start();
    let mut streams = Vec::new();
    for begun in ["", "{\"name\":\"seat\","] {
        let mut stream = node.connect();
        write!(
            stream,
            "POST /v1/grab_lock HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40\r\n\r\n{begun}"
        )
        .unwrap();
        streams.push(stream);
    }
    // Sending a piece at a time does not help.
    let mut drips = node.connect();
    write!(
        drips,
        "POST /v1/grab_lock HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    .unwrap();
    let dripping = drips.try_clone().unwrap();
    let drip = std::thread::spawn(move || {
        let mut to = dripping;
        while to.write_all(b"1\r\n \r\n").is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    });
    streams.push(drips);
    for stream in streams {
        let response = read_response(stream);
        assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
        assert!(response.contains("too_slow") && response.contains("hint"), "{response}");
    }
    drip.join().unwrap();
    assert_eq!(node.get("/v1/locks").ok()["locks"], json!([]));
    assert_eq!(node.metric("holdfast_requests_total"), 0.0);
}

#[test]
fn truncated_body_has_no_effect() {
    let node = Node::start();
    let body = json!({ "name": "seat", "ttl_ms": 60_000 }).to_string();
    let mut stream = node.connect();
    let length = body.len() + 1;
    write!(
        stream,
        "POST /v1/grab_lock HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let response = read_response(stream);
    assert!(response.is_empty() || response.starts_with("HTTP/1.1 400 "), "{response}");
    assert_eq!(node.get("/v1/locks").ok()["locks"], json!([]));
}

#[test]
fn invalid_input_is_refused() {
    let node = Node::start();
    for nonsense in [
        "\r\n\r\n\r\n\0\u{1}\u{2}",
        "HELLO\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "*3\r\n$3\r\nSET\r\n",
    ] {
        let mut stream = node.connect();
        stream.write_all(nonsense.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let response = read_response(stream);
        assert!(response.is_empty() || response.starts_with("HTTP/1.1 400 "), "{response}");
    }
    node.get("/readyz").ok();
}

#[test]
fn endless_body_is_refused() {
    let node = Node::start();
    let mut stream = node.connect();
    write!(
        stream,
        "POST /v1/grab_lock HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    .unwrap();
    let mut reads = stream.try_clone().unwrap();
    let answer = std::thread::spawn(move || {
        let mut first = [0; 12];
        reads.read_exact(&mut first).map(|()| first)
    });
    let piece = format!("10000\r\n{}\r\n", " ".repeat(0x1_0000));
    let mut sent = 0_usize;
    // The server does not read forever.
    while stream.write_all(piece.as_bytes()).is_ok() {
        sent += piece.len();
        assert!(sent < 1 << 30, "a gigabyte was taken");
    }
    if let Ok(first) = answer.join().unwrap() {
        assert_eq!(&first, b"HTTP/1.1 413");
    }
    node.get("/readyz").ok();
}
