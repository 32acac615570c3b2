//! Every call does what its description promises.

use crate::support::{Events, Node, Reply, eventually};
use serde_json::{Value, json};

use std::collections::BTreeSet;
use std::sync::Mutex;

/// A server, and which of its calls have succeeded.
struct Story {
    node: Node,
    worked: Mutex<BTreeSet<String>>,
}

impl Story {
    fn note(&self, path: &str) {
        let path = path.split('?').next().unwrap_or_default();
        self.worked.lock().unwrap().insert(path.to_owned());
    }

    fn reply(&self, path: &str) -> Reply {
        let reply = self.node.get(path);
        assert_eq!(reply.status, 200, "{path} {}", reply.text);
        self.note(path);
        reply
    }

    fn get(&self, path: &str) -> Value {
        self.reply(path).body
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let done = self.node.post(path, body).ok();
        self.note(path);
        done
    }

    fn events(&self, path: &str) -> Events {
        self.note(path);
        self.node.events(path)
    }

    fn grab(&self, body: &Value) -> Value {
        self.post("/v1/grab_lock", body)
    }
}

/// Fails if an endpoint is described that no test has seen working.
#[test]
fn every_call_works() {
    let story = Story { node: Node::start(), worked: Mutex::default() };
    the_three_calls(&story);
    keeping_and_dying(&story);
    readers_and_writers(&story);
    several_names_and_permits(&story);
    sessions(&story);
    operators(&story);
    elections(&story);
    members(&story);
    users(&story);
    let described = story.get("/openapi.json");
    let described: BTreeSet<String> =
        described["paths"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(*story.worked.lock().unwrap(), described);
}

fn the_three_calls(story: &Story) {
    let grab = json!({ "name": "seat", "ttl_ms": 60_000, "label": "ana", "note": "paid" });
    let first = story.grab(&grab);
    assert_eq!((&first["ended"], &first["waited_ms"]), (&Value::Null, &json!(0)));
    assert_eq!(first["secret"].as_str().map(str::len), Some(32));
    let operate = |grant: &Value, value: &str| {
        let token = &grant["fencing_token"];
        json!({ "key": "orders", "value": value, "fencing_token": token })
    };
    let done = story.post("/v1/do_external_operation", &operate(&first, "one"));
    assert_eq!(done["value"], "one");
    assert_eq!(done["highest"], first["fencing_token"]);
    let released = story.post("/v1/release_lock", &Node::own(&first));
    assert_eq!(released["released"], first["fencing_token"]);
    // Releasing twice has the effect of releasing once.
    story.post("/v1/release_lock", &Node::own(&first));

    let second = story.grab(&grab);
    let raise = json!({ "key": "orders", "fencing_token": second["fencing_token"] });
    assert_eq!(story.post("/v1/raise", &raise)["value"], "one");
    let late = story.node.post("/v1/do_external_operation", &operate(&first, "late"));
    late.fails(409, "fenced");
    assert_eq!(late.body["highest"], second["fencing_token"]);
    let kept = story.get("/v1/register?key=orders");
    assert_eq!((&kept["value"], &kept["highest"]), (&json!("one"), &second["fencing_token"]));
    story.post("/v1/release_lock", &Node::own(&second));
}

fn keeping_and_dying(story: &Story) {
    let dies = story.grab(&json!({ "name": "job", "ttl_ms": 60_000, "label": "ana" }));
    let mut own = Node::own(&dies);
    own["note"] = "half way".into();
    story.post("/v1/note", &own);
    own.as_object_mut().unwrap().remove("note");
    own["ttl_ms"] = json!(1);
    assert_eq!(story.post("/v1/renew", &own)["ttl_ms"], 1);
    let next = story.grab(&json!({ "name": "job", "ttl_ms": 60_000, "wait_ms": 60_000 }));
    let ending = json!({
        "how": "expired",
        "token": dies["fencing_token"],
        "label": "ana",
        "note": "half way",
        "reason": null,
        "by": null,
    });
    assert_eq!((&next["ended"], &next["needs_recovery"]), (&ending, &ending));
    assert_eq!(story.get("/v1/lock?name=job")["needs_recovery"], ending);
    assert_eq!(story.post("/v1/recovered", &Node::own(&next))["from"], ending);
    assert_eq!(story.get("/v1/lock?name=job")["needs_recovery"], Value::Null);
    let late = story.node.post("/v1/release_lock", &Node::own(&dies));
    late.fails(409, "not_held");

    let grab =
        json!({ "name": "job", "ttl_ms": 1, "wait_ms": 60_000, "request_id": "x".repeat(16) });
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| story.node.post("/v1/grab_lock", &grab));
        eventually("it waits", || (story.node.waiting("job") == 1).then_some(()));
        let outcome = story.post("/v1/outcome", &json!({ "request_id": "x".repeat(16) }));
        let own = json!({
            "name": "job", "fencing_token": outcome["fencing_token"], "secret": outcome["secret"],
        });
        assert_eq!(story.post("/v1/cancel", &own)["cancelled"], outcome["fencing_token"]);
        waits.join().unwrap().fails(409, "not_acquired");
    });
}

fn readers_and_writers(story: &Story) {
    let read = json!({ "name": "book", "ttl_ms": 60_000, "mode": "shared" });
    let (one, other) = (story.grab(&read), story.grab(&read));
    assert_eq!(one["mode"], "shared");
    assert_eq!(story.get("/v1/lock?name=book")["holding"], 2);
    story.node.post("/v1/upgrade", &Node::own(&one)).fails(409, "not_acquired");
    story.post("/v1/release_lock", &Node::own(&other));
    let writer = story.post("/v1/upgrade", &Node::own(&one));
    assert_eq!((&writer["mode"], &writer["secret"]), (&json!("exclusive"), &one["secret"]));
    assert!(writer["fencing_token"].as_u64() > other["fencing_token"].as_u64());
    story.node.post("/v1/grab_lock", &read).fails(409, "not_acquired");
    let reader = story.post("/v1/downgrade", &Node::own(&writer));
    assert_eq!(reader["downgraded"], writer["fencing_token"]);
    story.grab(&read);
}

fn several_names_and_permits(story: &Story) {
    let both = json!({ "names": ["b", "a"], "ttl_ms": 60_000 });
    let grant = story.grab(&both);
    assert_eq!(grant["names"], json!(["a", "b"]));
    assert_eq!(grant["after"].as_array().map_or(0, Vec::len), 0);
    story
        .node
        .post("/v1/grab_lock", &json!({ "name": "b", "ttl_ms": 1 }))
        .fails(409, "not_acquired");
    story.post("/v1/release_lock", &Node::own(&grant));

    let permit = json!({ "name": "pool", "ttl_ms": 60_000, "mode": "permit", "permits": 2 });
    story.grab(&permit);
    story.grab(&permit);
    story.node.post("/v1/grab_lock", &permit).fails(409, "not_acquired");
    assert_eq!(story.get("/v1/lock?name=pool")["permits"], 2);
}

fn sessions(story: &Story) {
    let opened = story.post("/v1/sessions/open", &json!({ "ttl_ms": 60_000, "label": "host:1" }));
    let session = json!({ "session": opened["session"] });
    let grant = story.grab(&json!({ "name": "of-session", "session": opened["session"] }));
    assert_eq!(grant["ttl_ms"], Value::Null);
    assert_eq!(story.post("/v1/sessions/heartbeat", &session), json!({ "alive": true }));
    let id = opened["session"]["id"].as_u64().unwrap();
    let listed = story.get(&format!("/v1/sessions?after={}&limit=1", id - 1));
    let listed = &listed["sessions"][0];
    assert_eq!((&listed["id"], &listed["label"]), (&json!(id), &json!("host:1")));
    assert_eq!(listed["tickets"], json!([grant["fencing_token"]]));
    story.post("/v1/sessions/close", &session);
    story.node.post("/v1/sessions/heartbeat", &session).fails(409, "session_ended");
    assert_eq!(story.get("/v1/lock?name=of-session")["needs_recovery"]["how"], "closed");
}

fn operators(story: &Story) {
    let mut events = story.events("/v1/watch?prefix=stuck");
    assert_eq!(events.next().0, "watching");
    let grant = story.grab(&json!({ "name": "stuck", "ttl_ms": 60_000, "label": "ana" }));
    assert_eq!(events.next().0, "granted");
    let asks = json!({ "name": "stuck", "by": "op", "reason": "maintenance", "within_ms": 60_000 });
    assert_eq!(story.post("/v1/revoke", &asks), json!({ "asked": 1 }));
    let (kind, asked) = events.next();
    assert_eq!((kind.as_str(), &asked["by"]), ("revocation_asked", &json!("op")));
    let holder = &story.get("/v1/lock?name=stuck&stale=true")["holders"][0];
    assert!(holder["let_go_in_ms"].as_u64().is_some());

    std::thread::scope(|scope| {
        let waits = json!({ "name": "stuck", "ttl_ms": 60_000, "wait_ms": 60_000, "label": "bo" });
        let node = &story.node;
        let waits = scope.spawn(move || node.post("/v1/grab_lock", &waits).ok());
        eventually("bo waits", || (story.node.waiting("stuck") == 1).then_some(()));
        let why = story.get("/v1/why?name=stuck");
        assert_eq!(why["links"][0]["link"], "behind");
        assert_eq!(why["links"][0]["front"], grant["fencing_token"]);
        let force = json!({ "name": "stuck", "by": "op", "reason": "too long" });
        assert_eq!(story.post("/v1/force", &force), json!({ "ended": 1 }));
        let next = waits.join().unwrap();
        assert_eq!((&next["ended"]["how"], &next["ended"]["by"]), (&json!("forced"), &json!("op")));
    });
    assert_eq!(events.next().0, "ended");
    assert_eq!(events.next().0, "granted");
    let history = story.get("/v1/history?name=stuck&limit=3");
    let what: Vec<&str> =
        history["events"].as_array().unwrap().iter().filter_map(|e| e["what"].as_str()).collect();
    assert_eq!(what, ["granted", "forced", "revocation asked"]);
    let listed = story.get("/v1/locks?prefix=stuck");
    assert_eq!(listed["locks"][0]["name"], "stuck");
    assert_eq!(listed["next_after"], Value::Null);
}

fn elections(story: &Story) {
    let candidate = json!({ "name": "shop", "value": "ana", "ttl_ms": 60_000 });
    let elected = story.post("/v1/election/campaign", &candidate);
    assert_eq!(story.get("/v1/election/leader?name=shop")["leader"]["value"], "ana");
    let mut observer = story.events("/v1/election/observe?name=shop");
    assert_eq!(observer.next().1["leader"]["value"], "ana");
    story.post("/v1/election/resign", &Node::own(&elected));
    assert_eq!(observer.next().1["leader"], Value::Null);
}

fn users(story: &Story) {
    assert_eq!(story.get("/v1/whoami"), json!({ "user": null, "rules": null }));
    let rules = json!([{ "prefix": "jobs/", "rights": ["use", "read"] }]);
    let role = json!({ "name": "jobs", "rules": rules });
    assert_eq!(story.post("/v1/roles/set", &role), json!({ "set": "jobs" }));
    assert_eq!(story.get("/v1/roles"), json!({ "roles": [role] }));
    let root = json!({ "name": "root", "password": "secret", "roles": ["admin"] });
    story.post("/v1/users/add", &root);
    // From now on somebody must be logged in, until the last user is removed.
    let post = |path: &str, body: Value| {
        story.note(path);
        let body = body.to_string();
        story.node.send_as_user("root", "secret", "POST", path, Some(&body)).ok()
    };
    let get = |path: &str| {
        story.note(path);
        story.node.send_as_user("root", "secret", "GET", path, None).ok()
    };
    let added = post("/v1/users/add_token", json!({ "name": "root", "note": "cron" }));
    post("/v1/users/remove_token", json!({ "name": "root", "id": added["id"] }));
    post("/v1/users/set_roles", json!({ "name": "root", "roles": ["admin", "jobs"] }));
    let shown = json!({
        "name": "root", "roles": ["admin", "jobs"], "has_password": true, "tokens": [],
    });
    assert_eq!(get("/v1/users"), json!({ "users": [shown] }));
    post("/v1/users/set_password", json!({ "name": "root", "password": "secret" }));
    let newest = get("/v1/audit?limit=1")["records"][0].clone();
    assert_eq!((&newest["user"], &newest["action"]), (&json!("root"), &json!("password_set")));
    post("/v1/users/remove", json!({ "name": "root" }));
    assert_eq!(
        story.post("/v1/roles/remove", &json!({ "name": "jobs" })),
        json!({ "removed": "jobs" })
    );
}

fn members(story: &Story) {
    let status = story.get("/v1/status");
    assert_eq!((&status["node"], &status["leader"]), (&json!(1), &json!(1)));
    assert_eq!(status["nodes"][0]["role"], "leader");
    story.post("/v1/members/transfer", &json!({ "node": 1 }));
    // There is no other node to promote here: the process tests do that.
    story.node.post("/v1/members/promote", &json!({ "node": 1 })).fails(409, "not_changed");
    story.note("/v1/members/promote");
    let added = story.post("/v1/members/add", &json!({ "address": "127.0.0.1:1" }));
    let listed = story.get("/v1/members")["members"].clone();
    let learner = json!({ "id": added["node"], "address": "127.0.0.1:1", "votes": false });
    assert_eq!(listed.as_array().and_then(|members| members.last()), Some(&learner));
    story.post("/v1/members/remove", &added);
    assert_eq!(story.get("/v1/members")["members"].as_array().map(Vec::len), Some(1));

    let backup = story.reply("/v1/backup");
    assert!(backup.text.len() > 100);
    let name = backup.headers["content-disposition"].to_str().unwrap();
    assert!(name.starts_with("attachment; filename=\"holdfast-"), "{name}");
    assert_eq!(story.get("/healthz"), json!({ "alive": true }));
    assert_eq!(story.get("/readyz"), json!({ "ready": true }));
    story.reply("/metrics");
    story.reply("/");
}
