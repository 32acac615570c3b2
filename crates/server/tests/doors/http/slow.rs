//! Slow, torn and endless requests: each one ends, and the server keeps running.

use crate::support::Node;
use serde_json::json;
use std::io::{Read, Write};

/// Everything received until the other side closes the connection.
fn hears(mut stream: impl Read) -> String {
    let mut said = Vec::new();
    // A reset counts as closed.
    let _ = stream.read_to_end(&mut said);
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
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
        let said = hears(stream);
        assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
        assert!(said.contains("too_slow") && said.contains("hint"), "{said}");
    }
    drip.join().unwrap();
    assert_eq!(node.get("/v1/locks").ok()["locks"], json!([]));
    assert_eq!(node.metric("holdfast_requests_total"), 0.0);
}

#[test]
fn a_body_that_is_cut_off_has_no_effect() {
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
    let said = hears(stream);
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 400 "), "{said}");
    assert_eq!(node.get("/v1/locks").ok()["locks"], json!([]));
}

#[test]
fn nonsense_is_refused() {
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
        let said = hears(stream);
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 400 "), "{said}");
    }
    node.get("/readyz").ok();
}

#[test]
fn a_body_without_an_end_is_refused() {
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
