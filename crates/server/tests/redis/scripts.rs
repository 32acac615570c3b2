//! Scripts: the ones that every lock client has, and others.

use crate::client;
use crate::resp::Redis;
use crate::support::Node;
use std::collections::HashSet;
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

/// `math.random` gave the same numbers in every script, so that a script which makes an owner token
/// of them gave every holder the same one.
#[test]
fn scripts_draw_other_random_numbers_each_time() {
    let node = Node::start();
    let mut redis = client(&node);
    let draw = "return tostring(math.random()) .. tostring(math.random())";
    let drawn: HashSet<String> = (0..100).map(|_| redis.ask_words(&["EVAL", draw, "0"])).collect();
    assert_eq!(drawn.len(), 100);
    // One that runs again because a key was not read yet goes the same way again.
    let keys = "for _ = 1, 5 do redis.call('set', 'key-' .. math.random(1e9), 1) end \
                return #redis.call('keys', 'key-*')";
    assert_eq!(redis.ask_words(&["EVAL", keys, "0"]), "5");
    // Two in one transaction draw different ones, and a seed fixes them.
    redis.send(&["MULTI"]);
    redis.send_words(&["EVAL", draw, "0"]);
    redis.send_words(&["EVAL", draw, "0"]);
    redis.send(&["EXEC"]);
    assert_eq!(
        (redis.hear(), redis.hear(), redis.hear()),
        ("OK".into(), "QUEUED".into(), "QUEUED".into())
    );
    let both = redis.hear();
    let (one, two) = both.trim_matches(['[', ']']).split_once(' ').unwrap();
    assert_ne!(one, two);
    let seeded = format!("math.randomseed(7) {draw}");
    let ask = |redis: &mut Redis| redis.ask_words(&["EVAL", &seeded, "0"]);
    assert_eq!(ask(&mut redis), ask(&mut redis));
}
