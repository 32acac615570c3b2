//! The same lock through Redis and HTTP.

use super::client;
use crate::support::{Node, eventually};
use serde_json::json;

#[test]
fn a_lock_is_the_same_in_both_doors() {
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
fn a_lock_that_ran_out_is_seen_to_have_expired() {
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
    let heard = redis.ask(&format!("HOLDFAST.ACQUIRE job {bo} TTL 60000 WAIT 60000"));
    assert!(heard.contains("expired") && heard.contains("native"), "{heard}");
}

/// An object keeps other doors from using its name.
#[test]
fn a_hash_is_no_lock() {
    let node = Node::start();
    let mut redis = client(&node);
    assert_eq!(redis.ask("HSET thing a 1"), "1");
    node.post("/v1/grab_lock", &json!({ "name": "thing", "ttl_ms": 1000 })).fails(409, "in_use");
    let bo = redis.ask("HOLDFAST.OWNERID");
    let said = redis.ask(&format!("HOLDFAST.ACQUIRE thing {bo} TTL 1000"));
    assert!(said.starts_with("-WRONGTYPE"));
}
