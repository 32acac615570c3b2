//! Every endpoint and its fields.

use super::fields::Kind;
use serde_json::{Value, json};

/// An endpoint, with a valid request to it.
pub(super) struct Call {
    pub(super) path: &'static str,
    /// A body, or the fields of a query.
    pub(super) good: Value,
    pub(super) fields: Vec<(&'static str, Kind)>,
}

fn call(path: &'static str, good: Value, fields: &[(&'static str, Kind)]) -> Call {
    Call { path, good, fields: fields.to_vec() }
}

const OWN: [(&str, Kind); 3] =
    [("name", Kind::Name), ("fencing_token", Kind::Token), ("secret", Kind::Secret)];

const ACCOUNT: (&str, Kind) = ("name", Kind::Account);

fn ana() -> Value {
    json!({ "name": "ana" })
}

/// Every call with a body.
pub(super) fn posts(own: &Value) -> Vec<Call> {
    let and = |more: &[(&'static str, Kind)]| [OWN.as_slice(), more].concat();
    let with = |field: &str, value: Value| {
        let mut body = own.clone();
        body[field] = value;
        body
    };
    let session = json!({ "session": { "id": 1, "secret": "0".repeat(32) } });
    let fenced =
        [("key", Kind::Name), ("fencing_token", Kind::Token), ("mode", Kind::Mode)].as_slice();
    let taken = [
        ("name", Kind::Name),
        ("ttl_ms", Kind::Ttl),
        ("wait_ms", Kind::Wait),
        ("note", Kind::Text(4096)),
        ("request_id", Kind::RequestId),
        ("session", Kind::Session),
    ];
    let grab = [
        ("names", Kind::Names),
        ("label", Kind::Text(4096)),
        ("mode", Kind::Mode),
        ("permits", Kind::Permits),
        ("lock_delay_ms", Kind::Delay),
        ("holding", Kind::Tokens),
    ];
    let broken = [
        ("name", Kind::Name),
        ("fencing_token", Kind::Token),
        ("by", Kind::Text(4096)),
        ("reason", Kind::Text(512)),
    ];
    let revoke = json!({ "name": "held", "by": "me", "reason": "why", "within_ms": 1_000 });
    let force = json!({ "name": "held", "by": "me", "reason": "why" });
    let node = json!({ "node": 1 });
    let of_node = [("node", Kind::Node)];
    vec![
        call(
            "/v1/grab_lock",
            json!({ "name": "free", "ttl_ms": 1_000 }),
            &[taken.as_slice(), &grab].concat(),
        ),
        call("/v1/release_lock", own.clone(), &OWN),
        call(
            "/v1/do_external_operation",
            json!({ "key": "k", "value": "v", "fencing_token": own["fencing_token"] }),
            &[fenced, &[("value", Kind::Text(65_536))]].concat(),
        ),
        call("/v1/raise", json!({ "key": "k", "fencing_token": own["fencing_token"] }), fenced),
        call("/v1/renew", with("ttl_ms", json!(1_000)), &and(&[("ttl_ms", Kind::Ttl)])),
        call("/v1/note", with("note", json!("n")), &and(&[("note", Kind::Text(4096))])),
        call("/v1/cancel", own.clone(), &OWN),
        call(
            "/v1/upgrade",
            own.clone(),
            &and(&[
                ("wait_ms", Kind::Wait),
                ("request_id", Kind::RequestId),
                ("holding", Kind::Tokens),
            ]),
        ),
        call("/v1/downgrade", own.clone(), &OWN),
        call("/v1/recovered", own.clone(), &OWN),
        call(
            "/v1/outcome",
            json!({ "request_id": "0123456789abcdef" }),
            &[("request_id", Kind::RequestId)],
        ),
        call(
            "/v1/election/campaign",
            json!({ "name": "free", "ttl_ms": 1_000 }),
            &[taken.as_slice(), &[("value", Kind::Text(4096))]].concat(),
        ),
        call("/v1/election/resign", own.clone(), &OWN),
        call(
            "/v1/sessions/open",
            json!({ "ttl_ms": 60_000 }),
            &[("ttl_ms", Kind::SessionTtl), ("label", Kind::Text(4096))],
        ),
        call("/v1/sessions/heartbeat", session.clone(), &[("session", Kind::Session)]),
        call("/v1/sessions/close", session, &[("session", Kind::Session)]),
        call(
            "/v1/revoke",
            revoke,
            &[broken.as_slice(), &[("within_ms", Kind::Delay), ("force", Kind::Flag)]].concat(),
        ),
        call("/v1/force", force, &broken),
        call(
            "/v1/members/add",
            json!({ "address": "127.0.0.1:7410" }),
            &[("address", Kind::Address)],
        ),
        call("/v1/members/promote", node.clone(), &of_node),
        call(
            "/v1/members/remove",
            node.clone(),
            &[of_node.as_slice(), &[("force", Kind::Flag)]].concat(),
        ),
        call("/v1/members/transfer", node, &of_node),
        call(
            "/v1/users/add",
            ana(),
            &[ACCOUNT, ("password", Kind::Text(1_024)), ("roles", Kind::Accounts)],
        ),
        call("/v1/users/remove", ana(), &[ACCOUNT]),
        call("/v1/users/set_password", ana(), &[ACCOUNT, ("password", Kind::Text(1_024))]),
        call(
            "/v1/users/set_roles",
            json!({ "name": "ana", "roles": [] }),
            &[ACCOUNT, ("roles", Kind::Accounts)],
        ),
        call("/v1/users/add_token", ana(), &[ACCOUNT, ("note", Kind::Text(4_096))]),
        call(
            "/v1/users/remove_token",
            json!({ "name": "ana", "id": 1 }),
            &[ACCOUNT, ("id", Kind::Node)],
        ),
        call(
            "/v1/roles/set",
            json!({ "name": "jobs", "rules": [{ "rights": ["use"] }] }),
            &[ACCOUNT, ("rules", Kind::Rules)],
        ),
        call("/v1/roles/remove", ana(), &[ACCOUNT]),
    ]
}

/// Every call with a query, if it has one.
pub(super) fn gets() -> Vec<Call> {
    let stale = ("stale", Kind::Stale);
    let of_name = [("name", Kind::Name), stale];
    let name = || json!({ "name": "held" });
    let none = |path| call(path, json!({}), &[]);
    vec![
        call("/v1/register", json!({ "key": "k" }), &[("key", Kind::Name), stale]),
        call("/v1/lock", name(), &of_name),
        call("/v1/why", name(), &of_name),
        call("/v1/history", name(), &[of_name.as_slice(), &[("limit", Kind::Limit)]].concat()),
        call("/v1/election/leader", name(), &of_name),
        call("/v1/election/observe", name(), &[("name", Kind::Name)]),
        call("/v1/watch", json!({}), &[("name", Kind::Name), ("prefix", Kind::Prefix)]),
        call(
            "/v1/locks",
            json!({}),
            &[("prefix", Kind::Prefix), ("after", Kind::Name), ("limit", Kind::Limit), stale],
        ),
        call("/v1/sessions", json!({}), &[("after", Kind::Id), ("limit", Kind::Limit), stale]),
        none("/v1/status"),
        none("/v1/members"),
        none("/v1/backup"),
        none("/v1/whoami"),
        none("/v1/users"),
        none("/v1/roles"),
        call("/v1/audit", json!({}), &[("before", Kind::Before), ("limit", Kind::Limit)]),
        none("/metrics"),
        none("/healthz"),
        none("/readyz"),
        none("/"),
        none("/openapi.json"),
    ]
}
