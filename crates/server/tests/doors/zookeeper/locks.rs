//! Recipes' locks, and the same lock through other doors.

use super::client;
use crate::redis::resp::Redis;
use crate::support::{Node, eventually};
use holdfast_core::NodeKind;
use holdfast_zookeeper::Code;
use holdfast_zookeeper::codec::Request;
use holdfast_zookeeper::codec::WatchEventType::Deleted;
use serde_json::json;

/// kazoo's marker.
const KAZOO: &str = "0123456789__lock__";

#[test]
fn the_lowest_number_holds_and_each_waiter_is_woken_by_the_one_before_it() {
    let node = Node::start();
    let mut clients: Vec<_> = (0..5).map(|_| client(&node)).collect();
    clients[0].make("/seat");
    let mut places = Vec::<(String, u64)>::new();
    for zk in &mut clients {
        let place = zk.contend("/seat", KAZOO).unwrap();
        if let Some((before, _)) = places.last() {
            let before: &String = before;
            zk.get(before, true).unwrap();
        }
        places.push(place);
    }
    let tokens: Vec<u64> = places.iter().map(|(_, token)| *token).collect();
    assert!(tokens.is_sorted());
    for at in 0..5 {
        let seen = node.get("/v1/lock?name=seat").ok();
        assert_eq!(seen["holders"][0]["token"], tokens[at], "{seen}");
        assert_eq!(seen["waiting"], 4 - at);
        // The first is released, the second is closed with its session, and so on.
        if at % 2 == 0 {
            clients[at].delete(&places[at].0).unwrap();
        } else {
            clients[at].ask(&Request::CloseSession).unwrap();
        }
        if let Some(next) = clients.get_mut(at + 1) {
            assert_eq!(next.event(), (Deleted, places[at].0.clone()));
        }
        for later in clients.iter_mut().skip(at + 2) {
            later.sync();
            assert_eq!(later.events(), [], "only the next one is woken");
        }
    }
    assert_eq!(node.get("/v1/lock?name=seat").ok()["holders"], json!([]));
}

#[test]
fn the_death_of_a_holder_hands_over_and_is_recorded() {
    let node = Node::start();
    let mut dies = super::Zk::open(super::port(&node), 2_000).unwrap();
    let mut next = client(&node);
    dies.make("/locks/seat");
    let (held, first) = dies.contend("/locks/seat", KAZOO).unwrap();
    let (_, second) = next.contend("/locks/seat", KAZOO).unwrap();
    next.get(&held, true).unwrap();
    drop(dies);
    assert_eq!(next.event(), (Deleted, held));
    let seen = node.get("/v1/lock?name=locks%2Fseat").ok();
    assert_eq!(seen["holders"][0]["token"], second, "{seen}");
    let ended = &seen["needs_recovery"];
    assert_eq!((&ended["token"], &ended["how"]), (&json!(first), &json!("expired")), "{seen}");
}

#[test]
fn a_redis_lock_and_a_recipes_lock_exclude_each_other() {
    let node = Node::start();
    let mut redis = Redis::connect(node.port + 1).unwrap();
    let mut zk = client(&node);
    zk.make("/seat");
    // Redis first: the recipe sees it in the line, and waits for it.
    assert_eq!(redis.ask("SET seat ana NX PX 60000"), "OK");
    let token: u64 = redis.ask("HOLDFAST.TOKEN seat").parse().unwrap();
    let (mine, own) = zk.contend("/seat", KAZOO).unwrap();
    let line = zk.children("/seat", false);
    assert_eq!(line.len(), 2);
    assert_eq!(format!("/seat/{}", line[1]), mine);
    let before = format!("/seat/{}", line[0]);
    let (_, stat) = zk.get(&before, true).unwrap();
    assert_eq!(stat.czxid, token);
    assert!(own > token);
    assert_eq!(zk.delete(&before), Err(Code::NoAuth));
    assert_eq!(redis.ask("DEL seat"), "1");
    assert_eq!(zk.event(), (Deleted, before));
    // And the other way round.
    assert_eq!(redis.ask("SET seat bo NX PX 60000"), "nil");
    assert_eq!(redis.ask("HOLDFAST.TOKEN seat"), own.to_string());
    zk.delete(&mine).unwrap();
    assert_eq!(redis.ask("SET seat bo NX PX 60000"), "OK");
}

#[test]
fn a_native_waiter_gets_in_line_behind_a_recipe() {
    let node = Node::start();
    let mut zk = client(&node);
    zk.make("/seat");
    let (mine, own) = zk.contend("/seat", "lock-").unwrap();
    let seen = node.get("/v1/lock?name=seat").ok();
    let holder = &seen["holders"][0];
    assert_eq!((&holder["label"], &holder["door"]), (&json!("me"), &json!("zookeeper")));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let body = json!({ "name": "seat", "ttl_ms": 60_000, "wait_ms": 60_000 });
            node.post("/v1/grab_lock", &body).ok()
        });
        eventually("it waits", || (node.waiting("seat") == 1).then_some(()));
        // Whoever comes later through the recipe sees it in front.
        let mut last = client(&node);
        let (behind, _) = last.contend("/seat", "lock-").unwrap();
        let line = last.children("/seat", false);
        assert_eq!((line.len(), format!("/seat/{}", line[2])), (3, behind));
        let foreign = format!("/seat/{}", line[1]);
        last.get(&foreign, true).unwrap();
        zk.delete(&mine).unwrap();
        let native = waits.join().unwrap();
        assert!(native["fencing_token"].as_u64().unwrap() > own);
        node.post("/v1/release_lock", &Node::own(&native)).ok();
        assert_eq!(last.event(), (Deleted, foreign));
    });
}

/// On a real ZooKeeper they would share a directory and fail to exclude each other.
#[test]
fn a_directory_has_one_recipe_at_a_time() {
    let node = Node::start();
    let mut zk = client(&node);
    zk.make("/seat");
    let (mine, _) = zk.contend("/seat", KAZOO).unwrap();
    assert_eq!(zk.contend("/seat", "lock-"), Err(Code::BadArguments));
    zk.delete(&mine).unwrap();
    zk.contend("/seat", "lock-").unwrap();
}

#[test]
fn plain_ephemeral_nodes_are_not_locks() {
    let node = Node::start();
    let mut zk = client(&node);
    zk.make("/seat");
    zk.create("/seat/me", NodeKind::Ephemeral, false).unwrap();
    zk.create("/seat/queue-", NodeKind::Ephemeral, true).unwrap();
    node.grab("seat");
    assert_eq!(zk.children("/seat", false).len(), 2);
}
