//! Scripts: the ones that every lock client has, and others.

use crate::client;
use crate::support::Node;
use std::thread;

const DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
const COUNT: &str = "local n = tonumber(redis.call('get', KEYS[1]) or '0') + 1 \
                     redis.call('set', KEYS[1], n) return n";

#[test]
fn known_scripts_and_others_give_what_they_should() {
    let node = Node::start();
    let mut redis = client(&node);
    assert_eq!(redis.ask("SET lock ana NX PX 60000"), "OK");
    assert_eq!(redis.ask_words(&["EVAL", DELETE, "1", "lock", "bo"]), "0");
    assert_eq!(redis.ask_words(&["EVAL", DELETE, "1", "lock", "ana"]), "1");
    let sha = redis.ask_words(&["SCRIPT", "LOAD", COUNT]);
    assert_eq!(redis.ask(&format!("EVALSHA {sha} 1 n")), "1");
    redis.send(&[&format!("EVALSHA {sha} 1 n"), "GET n", &format!("EVALSHA {sha} 1 n")]);
    assert_eq!((redis.hear(), redis.hear(), redis.hear()), ("2".into(), "2".into(), "3".into()));
    let missing = format!("EVALSHA {} 0", "0".repeat(40));
    assert_eq!(redis.ask(&missing), "-NOSCRIPT No matching script. Please use EVAL.");
    assert!(redis.ask_words(&["EVAL", "while true do end", "0"]).starts_with("-ERR"));
    let all = "return #redis.call('keys', '*')";
    assert_eq!(redis.ask_words(&["EVAL", all, "0"]), "1");
}

/// They run aside, one after the other: every one of them counts.
#[test]
fn scripts_on_one_key_do_not_lose_each_others_work() {
    let node = Node::start();
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut redis = client(&node);
                for _ in 0..20 {
                    let said = redis.ask_words(&["EVAL", COUNT, "1", "n"]);
                    assert!(said.parse::<u64>().is_ok(), "{said}");
                }
            });
        }
    });
    assert_eq!(client(&node).ask("GET n"), "120");
}
