//! Transactions that are too large for one log entry.
//!
//! A transaction of more than 1 MiB used to be numbered by its node and then never sent, because it
//! fits into no batch. Everything proposed after it waited behind it: one `MSET` of 400 keys, six
//! small `HSET`s in one pipeline on large hashes, or a loop in Lua stopped a node for every
//! protocol until it was restarted. Now it is refused before it is proposed, and the commands of a
//! pipeline, which need not be atomic, become several transactions.

use super::client;
use super::resp::Redis;
use crate::support::Node;
use serde_json::json;

/// A hash of about 200 KB.
fn large_hash(redis: &mut Redis, key: &str) {
    let value = "v".repeat(50_000);
    let words = ["HSET", key, "a", &value, "b", &value, "c", &value, "d", &value];
    assert_eq!(redis.ask_words(&words), "4");
}

/// Checks that the node still serves this connection, others, and other protocols.
fn is_alive(node: &Node, redis: &mut Redis) {
    assert_eq!(redis.ask("SET alive yes"), "OK");
    assert_eq!(client(node).ask("DEL alive"), "1");
    let grab = json!({ "name": "seat", "ttl_ms": 60_000 });
    let held = node.post("/v1/grab_lock", &grab).ok();
    node.post("/v1/release_lock", &Node::own(&held)).ok();
}

fn is_refused(reply: &str) {
    assert!(reply.starts_with("-ERR too many bytes in one transaction"), "{reply}");
}

#[test]
fn pipeline_on_large_hashes_works() {
    let node = Node::start();
    let mut redis = client(&node);
    let keys: Vec<String> = (0..6).map(|at| format!("hash-{at}")).collect();
    for key in &keys {
        large_hash(&mut redis, key);
    }
    let lines: Vec<String> = keys.iter().map(|key| format!("HSET {key} small 1")).collect();
    redis.send(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    for _ in &keys {
        assert_eq!(redis.receive(), "1");
    }
    is_alive(&node, &mut redis);
}

#[test]
fn only_the_oversized_command_of_a_pipeline_is_refused() {
    let node = Node::start();
    let mut redis = client(&node);
    let (name, value) = ("n".repeat(490), "v".repeat(2_000));
    let pairs: Vec<String> = (0..400).map(|at| format!("{name}{at} {value}")).collect();
    redis.send(&["SET before 1", &format!("MSET {}", pairs.join(" ")), "SET after 1"]);
    assert_eq!(redis.receive(), "OK");
    is_refused(&redis.receive());
    assert_eq!(redis.receive(), "OK");
    assert_eq!(redis.ask("DBSIZE"), "2");
    is_alive(&node, &mut redis);
}

#[test]
fn script_that_writes_too_much_is_refused() {
    let node = Node::start();
    let mut redis = client(&node);
    let script = "for _, key in ipairs(KEYS) do redis.call('set', key, string.rep('x', 4000)) end";
    let keys: Vec<String> = (0..300).map(|at| format!("k{at}")).collect();
    let mut words = vec!["EVAL", script, "300"];
    words.extend(keys.iter().map(String::as_str));
    is_refused(&redis.ask_words(&words));
    assert_eq!(redis.ask("DBSIZE"), "0");
    is_alive(&node, &mut redis);
}

/// Many small items take more space in the log than their text.
#[test]
fn many_empty_items_count_as_too_large() {
    let node = Node::start();
    let mut redis = client(&node);
    let script = "local items = {} for at = 1, 4000 do items[at] = '' end \
                  for _, key in ipairs(KEYS) do redis.call('rpush', key, unpack(items)) end";
    let keys: Vec<String> = (0..400).map(|at| format!("k{at}")).collect();
    let mut words = vec!["EVAL", script, "400"];
    words.extend(keys.iter().map(String::as_str));
    is_refused(&redis.ask_words(&words));
    is_alive(&node, &mut redis);
}

/// All of a `MULTI` is done, or none of it.
#[test]
fn oversized_transaction_is_refused_as_a_whole() {
    let node = Node::start();
    let mut redis = client(&node);
    for at in 0..6 {
        large_hash(&mut redis, &format!("hash-{at}"));
    }
    assert_eq!(redis.ask("MULTI"), "OK");
    for at in 0..6 {
        assert_eq!(redis.ask(&format!("HSET hash-{at} small 1")), "QUEUED");
    }
    is_refused(&redis.ask("EXEC"));
    assert_eq!(redis.ask("HEXISTS hash-0 small"), "0");
    is_alive(&node, &mut redis);
}
