//! Secrets are shown to nobody but their owner.

use crate::support::Node;
use serde_json::json;
use std::io;
use std::sync::{Arc, Mutex};
use tracing_subscriber::filter::LevelFilter;

const PASSWORD: &str = "open sesame";

/// What this process logs, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Fails if a listing, the history, the metrics, a refusal or the log reveals a secret.
#[test]
fn secrets_are_not_visible_to_others() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .init();
    let node = Node::start_with(Some(PASSWORD));
    let session = node.post("/v1/sessions/open", &json!({ "ttl_ms": 60_000, "label": "s" })).ok();
    let request_id = "a-request-id-that-is-secret";
    let grab = json!({ "name": "seat", "ttl_ms": 60_000, "request_id": request_id });
    let first = node.post("/v1/grab_lock", &grab).ok();
    let of_session = json!({ "name": "shop", "session": session["session"] });
    let second = node.post("/v1/grab_lock", &of_session).ok();
    node.post("/v1/force", &json!({ "name": "seat", "by": "me", "reason": "why" })).ok();
    let third = node.grab("seat");
    let secrets = [
        PASSWORD,
        request_id,
        session["session"]["secret"].as_str().unwrap(),
        first["secret"].as_str().unwrap(),
        second["secret"].as_str().unwrap(),
        third["secret"].as_str().unwrap(),
    ];
    let mut seen = String::new();
    for path in [
        "/",
        "/openapi.json",
        "/metrics",
        "/healthz",
        "/readyz",
        "/v1/status",
        "/v1/members",
        "/v1/locks",
        "/v1/lock?name=seat",
        "/v1/lock?name=shop",
        "/v1/sessions",
        "/v1/history?name=seat",
        "/v1/why?name=seat",
        "/v1/register?key=seat",
        "/v1/election/leader?name=shop",
    ] {
        let reply = node.get(path);
        assert_eq!(reply.status, 200, "{path}");
        seen += &reply.text;
    }
    // Refusals too.
    let mut wrong = Node::own(&third);
    wrong["fencing_token"] = first["fencing_token"].clone();
    seen += &node.post("/v1/release_lock", &wrong).text;
    seen += &node.post("/v1/grab_lock", &json!({ "name": "seat", "ttl_ms": 1 })).text;
    seen += &node.send_as(Some("wrong"), "GET", "/v1/locks", None).text;
    assert!(seen.contains("seat") && seen.contains("forced"), "{seen}");
    drop(node);
    let logged = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(logged.contains("stopping"), "the log was not heard: {logged}");
    seen += &logged;
    for secret in secrets {
        assert!(!seen.contains(secret), "{secret} in {seen}");
    }
}

#[test]
fn watchers_receive_no_secrets() {
    let node = Node::start();
    let mut events = node.events("/v1/watch?name=seat");
    assert_eq!(events.next().0, "watching");
    let grant = node.grab("seat");
    let (kind, told) = events.next();
    assert_eq!(kind, "granted");
    assert_eq!(told["fencing_token"], grant["fencing_token"]);
    assert_eq!(told.get("secret"), None);
    assert!(!told.to_string().contains(grant["secret"].as_str().unwrap()));
}

/// The heartbeat of a live session with a wrong secret was answered `session_ended`: its client
/// opened a new session, and lost its locks over a typo.
#[test]
fn wrong_secret_differs_from_an_ended_session() {
    let node = Node::start();
    let opened = node.post("/v1/sessions/open", &json!({ "ttl_ms": 60_000 })).ok();
    let session = &opened["session"];
    let wrong = json!({ "id": session["id"], "secret": "00112233445566778899aabbccddeeff" });
    let beat = |session: &serde_json::Value| {
        node.post("/v1/sessions/heartbeat", &json!({ "session": session }))
    };
    beat(&wrong).fails(403, "not_owner");
    node.post("/v1/sessions/close", &json!({ "session": wrong })).fails(403, "not_owner");
    beat(session).ok();
    node.post("/v1/sessions/close", &json!({ "session": session })).ok();
    // A client that does not know the secret does not learn that it has ended either: nothing is
    // left of it.
    for gone in [session, &wrong] {
        beat(gone).fails(409, "session_ended");
    }
}
