//! The same lock through Redis and HTTP.

use super::client;
use crate::support::{Node, eventually};
use serde_json::json;

#[test]
fn lock_is_shared_between_doors() {
    let node = Node::start();
    let mut redis = client(&node);
    assert_eq!(redis.ask("SET seat ana NX PX 60000"), "OK");
    let seen = node.get("/v1/lock?name=seat").ok();
    assert_eq!(seen["holders"][0]["label"], "ana");
    node.post("/v1/grab_lock", &json!({ "name": "seat", "ttl_ms": 1000 }))
        .fails(409, "not_acquired");
    assert_eq!(redis.ask("DEL seat"), "1");
    let native = node.grab("seat");
    assert_eq!(redis.ask("SET seat bo NX PX 60000"), "nil");
    for write in ["SET seat bo", "DEL seat", "PEXPIRE seat 5", "APPEND seat x"] {
        assert!(redis.ask(write).starts_with("-HELD "), "{write}");
    }
    let token = native["fencing_token"].as_u64().unwrap();
    assert_eq!(redis.ask("HOLDFAST.TOKEN seat"), token.to_string());
    node.post("/v1/release_lock", &Node::own(&native)).ok();
    assert_eq!(redis.ask("GET seat"), "nil");
}

#[test]
fn expired_lock_is_reported_as_expired() {
    let node = Node::start();
    let mut redis = client(&node);
    assert_eq!(redis.ask("SET seat ana NX PX 50"), "OK");
    eventually("it runs out", || (redis.ask("GET seat") == "nil").then_some(()));
    let next = node.grab("seat");
    assert_eq!(next["ended"]["how"], "expired");
    assert_eq!(next["ended"]["label"], "ana");
    // And vice versa.
    node.post("/v1/release_lock", &Node::own(&next)).ok();
    let short = json!({ "name": "job", "ttl_ms": 50, "label": "native" });
    node.post("/v1/grab_lock", &short).ok();
    let bo = redis.ask("HOLDFAST.OWNERID");
    let received = redis.ask(&format!("HOLDFAST.ACQUIRE job {bo} TTL 60000 WAIT 60000"));
    assert!(received.contains("expired") && received.contains("native"), "{received}");
}

/// An object keeps other doors from using its name.
#[test]
fn hash_is_not_a_lock() {
    let node = Node::start();
    let mut redis = client(&node);
    assert_eq!(redis.ask("HSET thing a 1"), "1");
    node.post("/v1/grab_lock", &json!({ "name": "thing", "ttl_ms": 1000 })).fails(409, "in_use");
    let bo = redis.ask("HOLDFAST.OWNERID");
    let reply = redis.ask(&format!("HOLDFAST.ACQUIRE thing {bo} TTL 1000"));
    assert!(reply.starts_with("-WRONGTYPE"));
}
