//! Bad input to every endpoint is answered with the right code and a hint, and changes nothing.

mod fields;
mod table;

use crate::support::Node;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use table::{Call, gets, posts};

const OPENAPI: &str = include_str!("../../../../src/doors/http/openapi.json");
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// A lock that is held by a session, so that it does not expire; and everything that can be seen.
struct Scene {
    node: Node,
    own: Value,
    before: Value,
}

impl Scene {
    fn set() -> Self {
        let node = Node::start();
        let session = node.post("/v1/sessions/open", &json!({ "ttl_ms": DAY_MS })).ok();
        let grab = json!({ "name": "held", "session": session["session"] });
        let own = Node::own(&node.post("/v1/grab_lock", &grab).ok());
        let mut scene = Self { node, own, before: Value::Null };
        scene.before = scene.seen();
        scene
    }

    /// Everything in which a change would show.
    fn seen(&self) -> Value {
        let mut locks = self.node.get("/v1/locks").ok();
        for holder in locks["locks"][0]["holders"].as_array_mut().unwrap() {
            holder["for_ms"] = Value::Null;
        }
        let mut sessions = self.node.get("/v1/sessions").ok();
        for session in sessions["sessions"].as_array_mut().unwrap() {
            session["open_for_ms"] = Value::Null;
        }
        let metrics = self.node.get("/metrics").text;
        let counts = ["requests_total", "grants_total", "endings", "last_token", "register_keys"];
        let counts: Vec<&str> = metrics
            .lines()
            .filter(|line| counts.iter().any(|count| line.contains(count)))
            .collect();
        assert!(counts.len() > 4, "{metrics}");
        let members = self.node.get("/v1/members").ok();
        json!([locks, sessions, members, counts])
    }

    /// Sends a request, which must be refused with this status and code, and leave no trace.
    fn refuses(&self, method: &str, path: &str, body: Option<&str>, status: u16, code: &str) {
        let reply = self.node.send(method, path, body);
        let shown: String = body.unwrap_or_default().chars().take(200).collect();
        let told = format!("{method} {path} {shown}: {} {}", reply.status, reply.text);
        assert_eq!((reply.status, reply.code()), (status, code), "{told}");
        reply.fails(status, code);
        assert_eq!(self.seen(), self.before, "{told}");
    }
}

#[test]
fn every_endpoint_is_tested() {
    let described: Value = serde_json::from_str(OPENAPI).unwrap();
    let paths = described["paths"].as_object().unwrap();
    let described: BTreeSet<(&str, &str)> = paths
        .iter()
        .flat_map(|(path, calls)| {
            calls.as_object().unwrap().keys().map(move |method| (method, path))
        })
        .map(|(method, path)| (method.as_str(), path.as_str()))
        .collect();
    let (posts, gets) = (posts(&json!({ "fencing_token": 1 })), gets());
    let posts = posts.iter().map(|call| ("post", call.path));
    let tables = posts.chain(gets.iter().map(|call| ("get", call.path))).collect();
    assert_eq!(described, tables);
}

#[test]
fn invalid_body_fields_are_refused() {
    let scene = Scene::set();
    for Call { path, good, fields } in posts(&scene.own) {
        for (field, kind) in fields {
            for wrong in kind.wrong() {
                let mut body = good.clone();
                body[field] = wrong;
                scene.refuses("POST", path, Some(&body.to_string()), 400, "bad_request");
            }
        }
    }
}

#[test]
fn unexpected_json_is_refused() {
    let scene = Scene::set();
    for Call { path, good, .. } in posts(&scene.own) {
        let text = good.to_string();
        let mut bodies: Vec<String> =
            ["", "{", "[]", "null", "7", "\"a\"", "name=a&ttl_ms=5", "{}"]
                .map(str::to_owned)
                .into();
        bodies.push(text[..text.len() - 1].to_owned());
        bodies.push(format!("{text}{text}"));
        bodies.push(format!("[{text}]"));
        bodies.push(text.replacen('{', "{\"unheard_of\":1,", 1));
        for field in good.as_object().unwrap().keys() {
            let mut less = good.clone();
            less.as_object_mut().unwrap().remove(field);
            // Without it the note is removed.
            if field != "note" {
                bodies.push(less.to_string());
            }
            let twice = format!("{{\"{field}\":{},", good[field]);
            bodies.push(text.replacen('{', &twice, 1));
        }
        for body in bodies {
            scene.refuses("POST", path, Some(&body), 400, "bad_request");
        }
    }
}

#[test]
fn oversized_body_is_refused() {
    let scene = Scene::set();
    let long = " ".repeat(2 << 20);
    for Call { path, good, .. } in posts(&scene.own) {
        let body = format!("{long}{good}");
        scene.refuses("POST", path, Some(&body), 413, "too_large");
    }
}

/// Encodes fields as a query.
fn query(fields: &Value) -> String {
    let encode =
        |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02x}")).collect() };
    let fields = fields.as_object().unwrap().iter();
    let fields: Vec<String> = fields
        .map(|(name, value)| format!("{name}={}", encode(value.as_str().unwrap_or("7"))))
        .collect();
    fields.join("&")
}

#[test]
fn invalid_query_is_refused() {
    let scene = Scene::set();
    for Call { path, good, fields } in gets().into_iter().filter(|call| !call.fields.is_empty()) {
        let mut queries = vec!["unheard_of=1".to_owned(), format!("{}&x=1", query(&good))];
        for (field, kind) in fields {
            for wrong in kind.wrong().into_iter().filter(Value::is_string) {
                let mut fields = good.clone();
                fields[field] = wrong;
                queries.push(query(&fields));
            }
            let mut fields = good.clone();
            fields[field] = "1".into();
            queries.push(format!("{}&{field}=1", query(&fields)));
            queries.push(format!("{field}=%"));
            queries.push(format!("{field}=%4x%"));
        }
        if good.as_object().is_some_and(|fields| !fields.is_empty()) {
            queries.push(String::new());
        }
        for query in queries {
            scene.refuses("GET", &format!("{path}?{query}"), None, 400, "bad_request");
        }
    }
    scene.refuses("GET", "/v1/watch?name=a&prefix=b", None, 400, "bad_request");
}

#[test]
fn wrong_methods_and_paths_are_refused() {
    let scene = Scene::set();
    for call in posts(&scene.own) {
        for method in ["GET", "DELETE", "PUT"] {
            let body = (method == "PUT").then(|| call.good.to_string());
            scene.refuses(method, call.path, body.as_deref(), 405, "wrong_method");
        }
        let allowed = scene.node.send("GET", call.path, None).headers["allow"].clone();
        assert_eq!(allowed, "POST", "{}", call.path);
    }
    for call in gets() {
        for method in ["POST", "DELETE", "PUT"] {
            let body = (method != "DELETE").then_some("{}");
            scene.refuses(method, call.path, body, 405, "wrong_method");
        }
    }
    for path in ["/v1", "/v1/", "/v1/locks/", "/v1/grab_lock/seat", "/v2/locks", "/favicon.ico"] {
        scene.refuses("GET", path, None, 404, "not_found");
        scene.refuses("POST", path, Some("{}"), 404, "not_found");
    }
}

#[test]
fn conflicting_fields_are_refused() {
    let scene = Scene::set();
    let grab = |body: Value| {
        scene.refuses("POST", "/v1/grab_lock", Some(&body.to_string()), 400, "bad_request");
    };
    grab(json!({ "name": "a", "names": ["b"], "ttl_ms": 1 }));
    grab(json!({ "name": "a" }));
    grab(json!({ "name": "a", "ttl_ms": 1, "mode": "permit" }));
    grab(json!({ "name": "a", "ttl_ms": 1, "mode": "shared", "permits": 2 }));
    let session = json!({ "id": 1, "secret": "0".repeat(32) });
    let id = "0123456789abcdef";
    grab(json!({ "name": "a", "session": session, "request_id": id }));
    let put = json!({ "key": "k", "value": "v", "fencing_token": 1, "mode": "permit" });
    let put = put.to_string();
    scene.refuses("POST", "/v1/do_external_operation", Some(&put), 400, "bad_request");
}

/// What only the core can detect goes through the log and is refused there.
#[test]
fn refused_requests_change_nothing() {
    let mut scene = Scene::set();
    let own = scene.own.clone();
    let with = |field: &str, value: Value| {
        let mut body = own.clone();
        body[field] = value;
        body
    };
    let last = scene.node.metric("holdfast_last_token") as u64;
    let of = |names: usize| (0..names).map(|name| name.to_string()).collect::<Vec<_>>();
    let session = json!({ "id": 999_999, "secret": "0".repeat(32) });
    let mut rows = vec![
        ("/v1/grab_lock", json!({ "name": "held", "ttl_ms": 1_000 }), 409, "not_acquired"),
        ("/v1/grab_lock", json!({ "names": [], "ttl_ms": 1 }), 400, "bad_request"),
        ("/v1/grab_lock", json!({ "names": of(17), "ttl_ms": 1 }), 400, "bad_request"),
        ("/v1/grab_lock", json!({ "names": ["a", "a"], "ttl_ms": 1 }), 400, "bad_request"),
        ("/v1/grab_lock", json!({ "name": "a", "ttl_ms": 1, "permits": 0 }), 400, "bad_request"),
        (
            "/v1/grab_lock",
            json!({ "name": "a", "ttl_ms": 1, "lock_delay_ms": 3_600_001 }),
            400,
            "bad_request",
        ),
        (
            "/v1/grab_lock",
            json!({ "name": "a", "ttl_ms": 1, "holding": vec![1; 65] }),
            400,
            "bad_request",
        ),
        (
            "/v1/grab_lock",
            json!({ "name": "a", "ttl_ms": 1, "wait_ms": 1, "holding": [last + 100] }),
            409,
            "not_held",
        ),
        ("/v1/grab_lock", json!({ "name": "held", "ttl_ms": 1, "permits": 2 }), 409, "other_kind"),
        ("/v1/grab_lock", json!({ "name": "a", "session": session }), 409, "session_ended"),
        ("/v1/sessions/open", json!({ "ttl_ms": 99 }), 400, "bad_request"),
        ("/v1/sessions/open", json!({ "ttl_ms": DAY_MS + 1 }), 400, "bad_request"),
        ("/v1/sessions/heartbeat", json!({ "session": session }), 409, "session_ended"),
        ("/v1/sessions/close", json!({ "session": session }), 409, "session_ended"),
        (
            "/v1/revoke",
            json!({ "name": "free", "by": "me", "reason": "", "within_ms": 1 }),
            409,
            "not_held",
        ),
        ("/v1/force", json!({ "name": "free", "by": "me", "reason": "" }), 409, "not_held"),
        ("/v1/members/promote", json!({ "node": 99 }), 409, "not_changed"),
        ("/v1/members/remove", json!({ "node": 99 }), 409, "not_changed"),
        ("/v1/members/transfer", json!({ "node": 99 }), 409, "not_changed"),
        ("/v1/cancel", own.clone(), 409, "already_served"),
        ("/v1/upgrade", own.clone(), 409, "wrong_mode"),
        ("/v1/renew", with("ttl_ms", json!(1_000)), 409, "wrong_mode"),
    ];
    for path in [
        "/v1/release_lock",
        "/v1/renew",
        "/v1/note",
        "/v1/cancel",
        "/v1/upgrade",
        "/v1/downgrade",
        "/v1/recovered",
        "/v1/election/resign",
    ] {
        let more = |mut body: Value| {
            if path == "/v1/renew" {
                body["ttl_ms"] = json!(1_000);
            }
            body
        };
        rows.push((path, more(with("secret", json!("0".repeat(32)))), 403, "not_owner"));
        rows.push((path, more(with("fencing_token", json!(last + 100))), 409, "not_held"));
        rows.push((path, more(with("name", json!("free"))), 409, "not_held"));
    }
    for path in ["/v1/raise", "/v1/do_external_operation"] {
        let mut body = json!({ "key": "k", "fencing_token": last + 100 });
        if path == "/v1/do_external_operation" {
            body["value"] = "v".into();
        }
        rows.push((path, body, 400, "never_drawn"));
    }
    let mut refused = Vec::new();
    for (path, body, status, code) in rows {
        let reply = scene.node.post(path, &body);
        if (reply.status, reply.code()) != (status, code) {
            refused.push(format!("{path} {body}: {} {}", reply.status, reply.text));
        }
        // Requests were counted, and nothing else changed.
        let seen = scene.seen().to_string();
        let of = |seen: &str| {
            let (before, after) = seen.split_once("holdfast_requests_total ").unwrap();
            format!("{before}{}", after.trim_start_matches(|char: char| char.is_ascii_digit()))
        };
        assert_eq!(of(&seen), of(&scene.before.to_string()), "{path} {body}");
    }
    assert!(refused.is_empty(), "{refused:#?}");
    scene.before = scene.seen();
}
