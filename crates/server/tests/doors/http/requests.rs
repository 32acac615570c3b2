//! Request ids, repeated releases, sessions and backups, as a client sees them.

use crate::support::Node;
use serde_json::{Value, json};

/// A request_id that was used for one lock and then reused with another name or mode was answered
/// with 200 and the first lock's token and secret: the client believed it held a lock that it did
/// not.
#[test]
fn reused_request_id_is_refused() {
    let node = Node::start();
    let grab = |more: Value| {
        let mut body = json!({
            "name": "seat-12A", "ttl_ms": 60_000, "request_id": "5d0c7a2e91f34b68a7c1",
        });
        let fields = body.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        node.post("/v1/grab_lock", &body)
    };
    let first = grab(json!({})).ok();
    for other in [
        json!({ "name": "seat-12B" }),
        json!({ "mode": "shared" }),
        json!({ "mode": "permit", "permits": 3 }),
        json!({ "ttl_ms": 61_000 }),
        json!({ "lock_delay_ms": 1 }),
        json!({ "holding": [1] }),
    ] {
        grab(other).fails(409, "other_request");
    }
    // What a retry may change.
    for again in
        [json!({}), json!({ "wait_ms": 1_000 }), json!({ "label": "host:2", "note": "second try" })]
    {
        let again = grab(again).ok();
        assert_eq!(again["fencing_token"], first["fencing_token"]);
        assert_eq!(again["secret"], first["secret"]);
    }
    let free = node.get("/v1/lock?name=seat-12B").ok();
    assert_eq!(free["holding"], 0);
    // An upgrade is not an acquire.
    let upgrade = json!({
        "name": "seat-12A", "fencing_token": first["fencing_token"], "secret": first["secret"],
        "request_id": "5d0c7a2e91f34b68a7c1",
    });
    node.post("/v1/upgrade", &upgrade).fails(409, "other_request");
    // A leader's value is more than a label.
    let campaign = |value: &str| {
        let body = json!({
            "name": "shop", "value": value, "ttl_ms": 60_000,
            "request_id": "0a61c2f7d9e84b3c95d2",
        });
        node.post("/v1/election/campaign", &body)
    };
    campaign("10.0.0.7:80").ok();
    campaign("10.0.0.7:80").ok();
    campaign("10.0.0.8:80").fails(409, "other_request");
}

/// A release whose answer was lost was told, after 33 more hand-offs, that it had held nothing.
#[test]
fn late_repeated_release_gets_the_same_reply() {
    let node = Node::start();
    let hand_off = || {
        let grant = node.post("/v1/grab_lock", &json!({ "name": "hot", "ttl_ms": 60_000 })).ok();
        let release = json!({
            "name": "hot", "fencing_token": grant["fencing_token"], "secret": grant["secret"],
        });
        node.post("/v1/release_lock", &release).ok();
        release
    };
    let first = hand_off();
    for _ in 0..40 {
        hand_off();
    }
    let again = node.post("/v1/release_lock", &first).ok();
    assert_eq!(again["released"], first["fencing_token"]);
}

/// A session that held a lock with its own deadline was listed with no ticket at all.
#[test]
fn session_listing_includes_all_its_tickets() {
    let node = Node::start();
    let opened = node.post("/v1/sessions/open", &json!({ "ttl_ms": 60_000 })).ok();
    let session = &opened["session"];
    let mut tokens: Vec<u64> = Vec::new();
    for body in [
        json!({ "name": "a", "ttl_ms": 60_000, "session": session }),
        json!({ "name": "b", "session": session }),
    ] {
        tokens.extend(node.post("/v1/grab_lock", &body).ok()["fencing_token"].as_u64());
    }
    let listed = node.get("/v1/sessions").ok();
    let sessions = listed["sessions"].as_array().unwrap();
    let own = sessions.iter().find(|listed| listed["id"] == session["id"]).unwrap();
    let mut shown: Vec<u64> =
        own["tickets"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    shown.sort_unstable();
    assert_eq!(shown, tokens);
}

/// With 256 long values in the register, a backup was written without an error that could not be
/// read back: one of its pieces was longer than a reader accepts.
#[test]
fn backup_of_a_full_register_can_be_restored() {
    let node = Node::start();
    let grant = node.post("/v1/grab_lock", &json!({ "name": "a", "ttl_ms": 600_000 })).ok();
    let value = "x".repeat(65_536);
    for number in 0..270 {
        let put = json!({
            "key": format!("key-{number}"), "value": value,
            "fencing_token": grant["fencing_token"],
        });
        node.post("/v1/do_external_operation", &put).ok();
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("holdfast.backup");
    let bytes = node.bytes("/v1/backup");
    assert!(bytes.len() > 270 * value.len());
    std::fs::write(&file, &bytes).unwrap();
    holdfast_server::verify_backup(&file).unwrap();
    // An incomplete file is recognised.
    std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    holdfast_server::verify_backup(&file).unwrap_err();
}
