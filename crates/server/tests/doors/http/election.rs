//! Elections: who leads, who may, and who is notified of it.

use crate::support::{Node, eventually};
use serde_json::{Value, json};
use std::thread;

fn candidate(value: &str, wait_ms: u64) -> Value {
    json!({ "name": "shop", "value": value, "ttl_ms": 60_000, "wait_ms": wait_ms })
}

#[test]
fn leader_is_elected_observed_and_resigns() {
    let node = Node::start();
    let leader = || node.get("/v1/election/leader?name=shop").ok()["leader"].clone();
    assert_eq!(leader(), Value::Null);
    let mut observer = node.events("/v1/election/observe?name=shop");
    let nobody = json!({ "name": "shop", "leader": null });
    assert_eq!(observer.next(), ("leader".to_owned(), nobody.clone()));

    let ana = node.post("/v1/election/campaign", &candidate("ana:80", 0)).ok();
    assert_eq!(ana["value"], "ana:80");
    let leads = json!({ "fencing_token": ana["fencing_token"], "value": "ana:80" });
    assert_eq!(leader(), leads);
    assert_eq!(observer.next().1, json!({ "name": "shop", "leader": leads }));
    node.post("/v1/election/campaign", &candidate("bo:80", 0)).fails(409, "not_acquired");

    thread::scope(|scope| {
        let bo =
            scope.spawn(|| node.post("/v1/election/campaign", &candidate("bo:80", 60_000)).ok());
        eventually("bo waits", || (node.waiting("shop") == 1).then_some(()));
        node.post("/v1/election/resign", &Node::own(&ana)).ok();
        let bo = bo.join().unwrap();
        assert!(bo["fencing_token"].as_u64() > ana["fencing_token"].as_u64(), "terms rise");
        assert_eq!(observer.next().1, nobody);
        let leads = json!({ "fencing_token": bo["fencing_token"], "value": "bo:80" });
        assert_eq!(observer.next().1, json!({ "name": "shop", "leader": leads }));
        assert_eq!(leader(), leads);
    });
    // A late observer is sent the leader immediately.
    let mut late = node.events("/v1/election/observe?name=shop");
    assert_eq!(late.next().1["leader"]["value"], "bo:80");
}

#[test]
fn session_candidate_leads_until_its_session_ends() {
    let node = Node::start();
    let session = node.post("/v1/sessions/open", &json!({ "ttl_ms": 60_000 })).ok();
    let candidate = json!({ "name": "shop", "value": "ana", "session": session["session"] });
    node.post("/v1/election/campaign", &candidate).ok();
    node.post("/v1/sessions/close", &json!({ "session": session["session"] })).ok();
    assert_eq!(node.get("/v1/election/leader?name=shop").ok()["leader"], Value::Null);
    let next = node.post("/v1/election/campaign", &self::candidate("bo", 0)).ok();
    assert_eq!(next["ended"]["how"], "closed");
    assert_eq!(next["needs_recovery"]["label"], "ana");
}
