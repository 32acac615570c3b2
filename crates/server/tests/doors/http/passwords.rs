//! The password is required at every path but two, whatever the method and the protocol.

use crate::support::Node;
use serde_json::Value;

const PASSWORD: &str = "open sesame";

#[test]
fn wrong_or_missing_password_is_refused_everywhere() {
    let node = Node::start_with(Some(PASSWORD));
    let described = node.get("/openapi.json").ok();
    let mut paths: Vec<(String, String)> = described["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, calls)| {
            let methods = calls.as_object().unwrap().keys();
            methods.map(move |method| (method.to_uppercase(), path.clone()))
        })
        .collect();
    assert!(paths.len() > 30);
    // Also for unknown paths, wrong methods, and gRPC.
    for (method, path) in [
        ("GET", "/nothing"),
        ("DELETE", "/v1/locks"),
        ("POST", "/healthz/x"),
        ("POST", "/holdfast.v1.Holdfast/Acquire"),
        ("POST", "/holdfast.v1.Holdfast/Session"),
    ] {
        paths.push((method.to_owned(), path.to_owned()));
    }
    let long = format!("{PASSWORD}!");
    let wrong = [None, Some(""), Some("open"), Some("Open sesame"), Some(long.as_str())];
    let before = node.get("/v1/locks").ok();
    for (method, path) in paths {
        let open = ["/healthz", "/readyz"].contains(&path.as_str());
        // Wrong passwords slow down their address, so they are tried at one path.
        let wrong = if path.ends_with("/lock") { &wrong[..] } else { &wrong[..1] };
        for wrong in wrong.iter().copied() {
            let body = (method == "POST").then_some("{}");
            let reply = node.send_as(wrong, &method, &path, body);
            if open {
                assert_eq!(reply.status, 200, "{path}");
                continue;
            }
            reply.fails(401, "unauthenticated");
            assert_eq!(reply.headers["www-authenticate"], "Bearer");
            assert!(!reply.text.contains(PASSWORD));
        }
        if method == "GET" && !path.contains("/observe") && !path.contains("/watch") {
            assert_ne!(node.get(&path).status, 401, "{path}");
        }
    }
    assert_eq!(node.get("/v1/locks").ok(), before);
}

#[test]
fn password_is_accepted_in_one_form_only() {
    let node = Node::start_with(Some(PASSWORD));
    let status = |header: &str| {
        let mut stream = node.connect();
        use std::io::{Read, Write};
        write!(
            stream,
            "GET /v1/status HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{header}\r\n\r\n"
        )
        .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response[9..12].to_owned()
    };
    assert_eq!(status("Authorization: Bearer open sesame"), "200");
    for wrong in [
        "Authorization: open sesame",
        "Authorization: Basic b3BlbiBzZXNhbWU=",
        "Authorization: Bearer",
        "Password: open sesame",
        "Authorization: Bearer open sesame, x",
    ] {
        assert_eq!(status(wrong), "401", "{wrong}");
    }
}

#[test]
fn grpc_is_refused_with_a_grpc_status() {
    let node = Node::start_with(Some(PASSWORD));
    let uri = format!("http://127.0.0.1:{}/holdfast.v1.Holdfast/Status", node.port);
    let request = ureq::http::Request::post(uri).header("content-type", "application/grpc");
    let reply = ureq::agent().run(request.body("").unwrap()).unwrap();
    // gRPC responses have status 200; the real status is in a header. 16 is "unauthenticated".
    assert_eq!(reply.status(), 200);
    assert_eq!(reply.headers()["grpc-status"], "16");
    let open = Node::start();
    let described: Value = open.get("/openapi.json").ok();
    assert!(described["components"]["securitySchemes"]["password"].is_object());
}
