//! Users and their rights, at every door: what is refused to one is refused at all of them, and what
//! a user may not read shows nowhere.

use crate::redis::resp::Redis;
use crate::support::{Node, Reply};
use crate::zookeeper::client::Zk;
use holdfast_core::NodeKind;
use holdfast_zookeeper::Code;
use holdfast_zookeeper::codec::{ReplyBody, Request};
use serde_json::{Value, json};

const NO_PERMISSION: &str = "-NOPERM user ana does not have the right to";

/// A node with the cluster's password, the user `ana` (password `secret`), who may use `jobs/`, and
/// the user `eve`, who may do nothing.
fn node_with_users() -> Node {
    let node = Node::start_with(Some("sesame"));
    let rules = json!([{ "prefix": "jobs/", "rights": ["use"] }]);
    node.post("/v1/roles/set", &json!({ "name": "jobs", "rules": rules })).ok();
    for (name, roles) in [("ana", json!(["jobs"])), ("eve", json!([]))] {
        let user = json!({ "name": name, "password": "secret", "roles": roles });
        node.post("/v1/users/add", &user).ok();
    }
    node
}

/// Redis's connection as this user.
fn redis(node: &Node, user: &str) -> Redis {
    let mut redis = Redis::connect(node.port + 1).unwrap();
    assert_eq!(redis.ask(&format!("AUTH {user} secret")), "OK");
    redis
}

fn zookeeper(node: &Node, user: &str) -> Zk {
    let mut zk = Zk::open(node.port + 2, 10_000).unwrap();
    zk.auth(&format!("{user}:secret")).unwrap();
    zk
}

fn children(zk: &mut Zk, path: &str) -> Result<Vec<String>, Code> {
    let request = Request::GetChildren { path: path.to_owned(), watch: false, stat: false };
    zk.ask(&request).map(|body| match body {
        ReplyBody::Texts(names) => names,
        body => panic!("{body:?}"),
    })
}

fn ana(node: &Node, method: &str, path: &str, body: Option<&Value>) -> Reply {
    node.send_as_user("ana", "secret", method, path, body.map(Value::to_string).as_deref())
}

#[test]
fn a_user_may_do_what_its_roles_allow_and_nothing_else_over_http() {
    let node = node_with_users();
    let grab = |name: &str| json!({ "name": name, "ttl_ms": 60_000 });
    let grant = ana(&node, "POST", "/v1/grab_lock", Some(&grab("jobs/1"))).ok();
    ana(&node, "POST", "/v1/grab_lock", Some(&grab("seats/1"))).fails(403, "forbidden");
    node.grab("seats/2");
    let both = json!({ "names": ["jobs/2", "seats/3"], "ttl_ms": 60_000 });
    ana(&node, "POST", "/v1/grab_lock", Some(&both)).fails(403, "forbidden");
    for path in ["lock", "why", "history", "election/leader"] {
        ana(&node, "GET", &format!("/v1/{path}?name=seats/2"), None).fails(403, "forbidden");
        ana(&node, "GET", &format!("/v1/{path}?name=jobs/1"), None).ok();
    }
    for path in ["register?key=seats/2", "watch?name=seats/2", "watch", "watch?prefix=job"] {
        ana(&node, "GET", &format!("/v1/{path}"), None).fails(403, "forbidden");
    }
    let raise = json!({ "key": "seats/2", "fencing_token": 1 });
    ana(&node, "POST", "/v1/raise", Some(&raise)).fails(403, "forbidden");
    // To use a lock is not to break it.
    let force = json!({ "name": "jobs/1", "by": "ana", "reason": "stuck" });
    ana(&node, "POST", "/v1/force", Some(&force)).fails(403, "forbidden");
    for path in ["users", "roles", "audit", "backup", "sessions"] {
        ana(&node, "GET", &format!("/v1/{path}"), None).fails(403, "forbidden");
    }
    for (path, body) in [
        ("users/add", json!({ "name": "bo", "roles": ["admin"] })),
        ("users/remove", json!({ "name": "eve" })),
        ("users/set_roles", json!({ "name": "ana", "roles": ["admin"] })),
        ("users/set_password", json!({ "name": "eve", "password": "x" })),
        ("users/add_token", json!({ "name": "eve" })),
        ("roles/set", json!({ "name": "jobs", "rules": [{ "rights": ["admin"] }] })),
        ("members/remove", json!({ "node": 1 })),
        ("members/transfer", json!({ "node": 1 })),
    ] {
        ana(&node, "POST", &format!("/v1/{path}"), Some(&body)).fails(403, "forbidden");
    }
    ana(&node, "POST", "/v1/release_lock", Some(&Node::own(&grant))).ok();
    let who = ana(&node, "GET", "/v1/whoami", None).ok();
    let rules = json!([{ "prefix": "jobs/", "rights": ["use"] }]);
    assert_eq!(who, json!({ "user": "ana", "rules": rules }));
}

/// A listing must not even tell that there are names between two pages.
#[test]
fn listings_show_only_what_the_user_may_read() {
    let node = node_with_users();
    for name in ["a", "jobs/1", "jobs/2", "jobs/3", "jobz", "z"] {
        node.grab(name);
    }
    let names = |page: &Value| -> Vec<String> {
        let locks = page["locks"].as_array().unwrap().iter();
        locks.map(|lock| lock["name"].as_str().unwrap().to_owned()).collect()
    };
    let page = ana(&node, "GET", "/v1/locks?limit=2", None).ok();
    assert_eq!(names(&page), ["jobs/1", "jobs/2"]);
    let next = page["next_after"].as_str().unwrap().to_owned();
    let page = ana(&node, "GET", &format!("/v1/locks?limit=2&after={next}"), None).ok();
    assert_eq!((names(&page), page["next_after"].is_null()), (vec!["jobs/3".to_owned()], true));
    let page = ana(&node, "GET", "/v1/locks?prefix=j", None).ok();
    assert_eq!(names(&page), ["jobs/1", "jobs/2", "jobs/3"]);
    assert_eq!(names(&ana(&node, "GET", "/v1/locks?prefix=z", None).ok()), [""; 0]);
    let all = node.get("/v1/locks?limit=2").ok();
    assert_eq!(names(&all), ["a", "jobs/1"]);
}

#[test]
fn rights_are_the_same_through_redis() {
    let node = node_with_users();
    node.grab("seats/1");
    let mut redis = redis(&node, "ana");
    assert_eq!(redis.ask("SET jobs/1 x NX PX 60000"), "OK");
    assert_eq!(redis.ask("GET jobs/1"), "x");
    let owner = redis.ask("HOLDFAST.OWNERID");
    for command in [
        "SET seats/2 x NX PX 60000",
        "GET seats/1",
        "EXISTS seats/1",
        "DEL seats/1",
        "MSETNX jobs/2 x seats/2 x",
        "HSET seats/3 a b",
        "EVAL return(redis.call('get',KEYS[1])) 1 seats/1",
        "WATCH seats/1",
        "PUBLISH seats/1 x",
        &format!("HOLDFAST.ACQUIRE seats/2 {owner} TTL 1000"),
        "HOLDFAST.TOKEN seats/1",
    ] {
        let reply = redis.ask(command);
        assert!(reply.starts_with(NO_PERMISSION), "{command}: {reply}");
    }
    assert_eq!(redis.ask("KEYS *"), "[jobs/1]");
    assert_eq!(redis.ask("DBSIZE"), "1");
    assert_eq!(redis.ask("PUBLISH jobs/1 x"), "0");
    // In a pipeline, only the commands that are not allowed are refused.
    redis.send(&["GET jobs/1", "GET seats/1", "SET jobs/3 x NX PX 60000"]);
    assert_eq!(redis.receive(), "x");
    assert!(redis.receive().starts_with(NO_PERMISSION));
    assert_eq!(redis.receive(), "OK");
    assert!(redis.ask("SUBSCRIBE seats/1").starts_with(NO_PERMISSION));
}

#[test]
fn rights_are_the_same_through_zookeeper() {
    let node = node_with_users();
    let mut root = Zk::open(node.port + 2, 10_000).unwrap();
    root.auth("holdfast:sesame").unwrap();
    for path in ["/jobs", "/seats", "/jobs/1"] {
        root.make(path);
    }
    let mut zk = zookeeper(&node, "ana");
    let lock = zk.create("/jobs/1/lock-", NodeKind::Ephemeral, true);
    assert!(lock.is_ok(), "{lock:?}");
    assert_eq!(zk.create("/jobs/2", NodeKind::Persistent, false).map(|_| ()), Ok(()));
    for path in ["/seats/1", "/other", "/jobs2"] {
        let created = zk.create(path, NodeKind::Persistent, false).map(|_| ());
        assert_eq!(created, Err(Code::NoAuth), "{path}");
        assert_eq!(zk.get(path, false).map(|_| ()), Err(Code::NoAuth), "{path}");
    }
    // The way to what it may use is open, and shows nothing else.
    assert_eq!(children(&mut zk, "/"), Ok(vec!["jobs".to_owned()]));
    assert_eq!(children(&mut zk, "/jobs"), Ok(vec!["1".to_owned(), "2".to_owned()]));
    let mut eve = zookeeper(&node, "eve");
    assert_eq!(children(&mut eve, "/"), Err(Code::NoAuth));
    // An identity of an access control list, not a user: it gives no rights.
    let mut stranger = Zk::open(node.port + 2, 10_000).unwrap();
    stranger.auth("bo:secret").unwrap();
    assert_eq!(stranger.get("/jobs", false).map(|_| ()), Err(Code::NoAuth));
    // The name of a user needs that user's password.
    let mut wrong = Zk::open(node.port + 2, 10_000).unwrap();
    assert_eq!(wrong.auth("ana:wrong").map(|_| ()), Err(Code::AuthFailed));
}

#[test]
fn changes_take_effect_for_connections_that_are_open() {
    let node = node_with_users();
    let mut redis = redis(&node, "ana");
    let mut zk = zookeeper(&node, "ana");
    assert_eq!(redis.ask("SET jobs/1 x NX PX 60000"), "OK");
    children(&mut zk, "/").unwrap();
    node.post("/v1/users/set_roles", &json!({ "name": "ana", "roles": [] })).ok();
    assert!(redis.ask("GET jobs/1").starts_with(NO_PERMISSION));
    assert_eq!(children(&mut zk, "/"), Err(Code::NoAuth));
    node.post("/v1/users/set_roles", &json!({ "name": "ana", "roles": ["jobs"] })).ok();
    assert_eq!(redis.ask("GET jobs/1"), "x");
    node.post("/v1/users/remove", &json!({ "name": "ana" })).ok();
    assert!(redis.ask("GET jobs/1").starts_with("-NOPERM"));
    let reply = ana(&node, "GET", "/v1/locks", None);
    reply.fails(401, "unauthenticated");
}

/// A watch outlived the rights that it was begun with.
#[test]
fn watches_end_with_the_right_to_them() {
    let node = node_with_users();
    let mut redis = redis(&node, "ana");
    assert!(redis.ask("SUBSCRIBE jobs/1").contains("subscribe"));
    let mut other = self::redis(&node, "ana");
    node.post("/v1/users/set_roles", &json!({ "name": "ana", "roles": [] })).ok();
    assert!(redis.is_closed());
    assert!(other.ask("PING").contains("PONG"));
}

#[test]
fn tokens_stand_in_for_passwords_until_they_are_revoked() {
    let node = node_with_users();
    let added = node.post("/v1/users/add_token", &json!({ "name": "ana", "note": "cron" })).ok();
    let token = added["token"].as_str().unwrap();
    assert!(token.starts_with("hft_"));
    let look = || node.send_as(Some(token), "GET", "/v1/lock?name=jobs/1", None);
    look().ok();
    node.send_as(Some(token), "GET", "/v1/lock?name=seats/1", None).fails(403, "forbidden");
    let mut redis = Redis::connect(node.port + 1).unwrap();
    assert_eq!(redis.ask(&format!("AUTH {token}")), "OK");
    assert_eq!(redis.ask("SET jobs/1 x NX PX 60000"), "OK");
    let users = node.get("/v1/users").ok();
    assert_eq!(users["users"][0]["tokens"][0]["note"], "cron");
    assert!(!users.to_string().contains(token));
    node.post("/v1/users/remove_token", &json!({ "name": "ana", "id": added["id"] })).ok();
    look().fails(401, "unauthenticated");
}

/// With users and no password for the cluster, nobody gets in without one of them.
#[test]
fn the_first_user_ends_the_open_door() {
    let node = Node::start();
    let mut redis = Redis::connect(node.port + 1).unwrap();
    let mut zk = Zk::open(node.port + 2, 10_000).unwrap();
    assert_eq!(redis.ask("SET seat x NX PX 60000"), "OK");
    zk.make("/a");
    let ana = json!({ "name": "ana", "password": "secret" });
    node.post("/v1/users/add", &ana).fails(409, "not_changed");
    let root = json!({ "name": "root", "password": "secret", "roles": ["admin"] });
    node.post("/v1/users/add", &root).ok();
    node.get("/v1/locks").fails(401, "unauthenticated");
    assert!(redis.ask("GET seat").starts_with("-NOAUTH"));
    assert_eq!(zk.get("/a", false).map(|_| ()), Err(Code::NoAuth));
    let as_root = |method: &str, path: &str, body: Option<&str>| {
        node.send_as_user("root", "secret", method, path, body)
    };
    as_root("GET", "/v1/locks", None).ok();
    as_root("POST", "/v1/users/remove", Some(r#"{"name":"root"}"#)).ok();
    node.get("/v1/locks").ok();
    assert_eq!(redis.ask("GET seat"), "x");
}

#[test]
fn operators_are_recorded_by_who_they_are_not_by_what_they_say() {
    let node = node_with_users();
    let rules = json!([{ "rights": ["operate"] }]);
    node.post("/v1/roles/set", &json!({ "name": "on-call", "rules": rules })).ok();
    node.post("/v1/users/set_roles", &json!({ "name": "eve", "roles": ["on-call"] })).ok();
    node.grab("seats/1");
    let force = json!({ "name": "seats/1", "by": "the boss", "reason": "stuck" });
    let eve = |path: &str, body: &Value| {
        node.send_as_user("eve", "secret", "POST", path, Some(&body.to_string()))
    };
    eve("/v1/force", &force).ok();
    let history = node.get("/v1/history?name=seats/1").ok();
    assert_eq!(history["events"][0]["more"]["by"], "eve (the boss)");
    eve("/v1/members/transfer", &json!({ "node": 1 })).fails(403, "forbidden");
    node.send_as_user("eve", "wrong", "GET", "/v1/locks", None).fails(401, "unauthenticated");
    let of = |records: &Value, action: &str| -> Value {
        let records = records["records"].as_array().unwrap();
        let found = records.iter().find(|record| record["action"] == action);
        found.unwrap_or_else(|| panic!("no {action} in {records:?}")).clone()
    };
    // What is recorded beside commands takes a moment.
    let records = loop {
        let records = node.get("/v1/audit").ok();
        if records["records"].as_array().unwrap().iter().any(|r| r["action"] == "login_failed") {
            break records;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    let broken = of(&records, "lock_broken");
    assert_eq!((&broken["user"], &broken["address"]), (&json!("eve"), &json!("127.0.0.1")));
    assert_eq!((&broken["subject"], &broken["detail"]), (&json!("seats/1"), &json!("stuck")));
    assert_eq!(of(&records, "right_refused")["user"], "eve");
    assert_eq!(of(&records, "login_failed")["subject"], "eve");
    assert_eq!(of(&records, "user_added")["user"], "holdfast");
    for secret in ["secret", "sesame", "argon2"] {
        assert!(!records.to_string().contains(secret), "{secret}");
    }
}
