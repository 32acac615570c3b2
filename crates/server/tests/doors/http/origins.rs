//! Web pages of other sites can't change anything here.

use crate::support::Node;
use serde_json::json;
use std::io::{Read, Write};

/// Sends a try for a lock as a browser would, for a page of that origin; returns the response.
fn page_sends(node: &Node, method: &str, path: &str, origin: &str) -> String {
    sends_to(node, &format!("localhost:{}", node.port), method, path, origin)
}

/// The same, addressed to that host.
fn sends_to(node: &Node, host: &str, method: &str, path: &str, origin: &str) -> String {
    let body = json!({ "name": "a", "ttl_ms": 60_000 }).to_string();
    let length = body.len();
    let mut stream = node.connect();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{origin}\
         Content-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn cross_site_requests_change_nothing() {
    let node = Node::start();
    let before = node.get("/v1/locks").ok();
    for origin in ["https://example.org", "http://localhost", "http://localhost:1", "null", ""] {
        let origin = format!("Origin: {origin}\r\n");
        for path in ["/v1/grab_lock", "/v1/members/remove", "/nothing"] {
            let response = page_sends(&node, "POST", path, &origin);
            assert!(response.starts_with("HTTP/1.1 403"), "{origin}{response}");
            assert!(response.contains("other_origin"), "{response}");
        }
    }
    assert_eq!(node.get("/v1/locks").ok(), before);
}

#[test]
fn programs_and_own_pages_are_allowed() {
    let node = Node::start();
    let own = format!("Origin: http://localhost:{}\r\n", node.port);
    for origin in ["", &own] {
        let response = page_sends(&node, "POST", "/v1/grab_lock", origin);
        assert!(!response.starts_with("HTTP/1.1 403"), "{response}");
    }
    // Reading changes nothing: the browser keeps the response from a page of another site.
    let response = page_sends(&node, "GET", "/v1/locks", "Origin: https://example.org\r\n");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

/// A site can make its own name point to this machine: to a browser its pages are then pages of
/// this server, which took locks for them and let them read everything.
#[test]
fn dns_rebinding_is_refused() {
    let node = Node::start();
    let host = format!("rebound.example:{}", node.port);
    let origin = format!("Origin: http://{host}\r\n");
    for (method, path) in [("POST", "/v1/grab_lock"), ("GET", "/v1/locks"), ("GET", "/")] {
        let response = sends_to(&node, &host, method, path, &origin);
        assert!(
            response.starts_with("HTTP/1.1 403") && response.contains("unknown_host"),
            "{response}"
        );
    }
    assert_eq!(node.get("/v1/locks").ok()["locks"], json!([]));
    for host in ["127.0.0.1", "[::1]:7400", "localhost", "a.localhost:1"] {
        let response = sends_to(&node, host, "GET", "/v1/locks", "");
        assert!(response.starts_with("HTTP/1.1 200"), "{host}: {response}");
    }
}

/// A page of another site does not know the password, whatever its name points to.
#[test]
fn any_host_is_allowed_with_a_password() {
    let node = Node::start_with(Some("open sesame"));
    let bearer = "Authorization: Bearer open sesame\r\n";
    let response = sends_to(&node, "behind.a.proxy.example", "GET", "/v1/locks", bearer);
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}
