//! Scripts: the ones that every lock client has, and others.

use super::client;
use super::resp::Redis;
use crate::support::Node;
use std::collections::HashSet;
use std::thread;

const DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
const COUNT: &str = "local n = tonumber(redis.call('get', KEYS[1]) or '0') + 1 \
                     redis.call('set', KEYS[1], n) return n";

#[test]
fn known_and_unknown_scripts_work() {
    let node = Node::start();
    let mut redis = client(&node);
    assert_eq!(redis.ask("SET lock ana NX PX 60000"), "OK");
    assert_eq!(redis.ask_words(&["EVAL", DELETE, "1", "lock", "bo"]), "0");
    assert_eq!(redis.ask_words(&["EVAL", DELETE, "1", "lock", "ana"]), "1");
    let sha = redis.ask_words(&["SCRIPT", "LOAD", COUNT]);
    assert_eq!(redis.ask(&format!("EVALSHA {sha} 1 n")), "1");
    redis.send(&[&format!("EVALSHA {sha} 1 n"), "GET n", &format!("EVALSHA {sha} 1 n")]);
    assert_eq!(
        (redis.receive(), redis.receive(), redis.receive()),
        ("2".into(), "2".into(), "3".into())
    );
    let missing = format!("EVALSHA {} 0", "0".repeat(40));
    assert_eq!(redis.ask(&missing), "-NOSCRIPT No matching script. Please use EVAL.");
    assert!(redis.ask_words(&["EVAL", "while true do end", "0"]).starts_with("-ERR"));
    let all = "return #redis.call('keys', '*')";
    assert_eq!(redis.ask_words(&["EVAL", all, "0"]), "1");
}

/// They run in the background, one after the other, and none of them is lost.
#[test]
fn concurrent_scripts_lose_no_updates() {
    let node = Node::start();
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut redis = client(&node);
                for _ in 0..20 {
                    let reply = redis.ask_words(&["EVAL", COUNT, "1", "n"]);
                    assert!(reply.parse::<u64>().is_ok(), "{reply}");
                }
            });
        }
    });
    assert_eq!(client(&node).ask("GET n"), "120");
}

/// `math.random` gave the same numbers in every script, so that a script that made an owner token
/// from them gave every holder the same one.
#[test]
fn scripts_get_fresh_random_numbers() {
    let node = Node::start();
    let mut redis = client(&node);
    let draw = "return tostring(math.random()) .. tostring(math.random())";
    let drawn: HashSet<String> = (0..100).map(|_| redis.ask_words(&["EVAL", draw, "0"])).collect();
    assert_eq!(drawn.len(), 100);
    // A script that runs again because a key had not been read yet takes the same path again.
    let keys = "for _ = 1, 5 do redis.call('set', 'key-' .. math.random(1e9), 1) end \
                return #redis.call('keys', 'key-*')";
    assert_eq!(redis.ask_words(&["EVAL", keys, "0"]), "5");
    // Two in one transaction draw different numbers, and a seed fixes them.
    redis.send(&["MULTI"]);
    redis.send_words(&["EVAL", draw, "0"]);
    redis.send_words(&["EVAL", draw, "0"]);
    redis.send(&["EXEC"]);
    assert_eq!(
        (redis.receive(), redis.receive(), redis.receive()),
        ("OK".into(), "QUEUED".into(), "QUEUED".into())
    );
    let both = redis.receive();
    let (one, two) = both.trim_matches(['[', ']']).split_once(' ').unwrap();
    assert_ne!(one, two);
    let seeded = format!("math.randomseed(7) {draw}");
    let ask = |redis: &mut Redis| redis.ask_words(&["EVAL", &seeded, "0"]);
    assert_eq!(ask(&mut redis), ask(&mut redis));
}

/// A list that is the worst case for Lua's quicksort: the numbers are decided while it is sorted,
/// always so that the pivot turns out to be one of the smallest (McIlroy, "A Killer Adversary for
/// Quicksort").
struct Adversary {
    places: Vec<usize>,
    numbers: Vec<usize>,
    undecided: usize,
    decided: usize,
    candidate: usize,
}

impl Adversary {
    fn less(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.places[a], self.places[b]);
        if self.numbers[a] == self.undecided && self.numbers[b] == self.undecided {
            self.numbers[if a == self.candidate { a } else { b }] = self.decided;
            self.decided += 1;
        }
        if self.numbers[a] == self.undecided {
            self.candidate = a;
        } else if self.numbers[b] == self.undecided {
            self.candidate = b;
        }
        self.numbers[a] < self.numbers[b]
    }

    /// Like `auxsort` in Lua 5.1, which continues with the smaller part first.
    fn sort(&mut self, mut low: usize, mut high: usize) {
        while low < high {
            if self.less(high, low) {
                self.places.swap(low, high);
            }
            let middle = (low + high) / 2;
            if high - low > 1 {
                if self.less(middle, low) {
                    self.places.swap(middle, low);
                } else if self.less(high, middle) {
                    self.places.swap(middle, high);
                }
            }
            if high - low <= 2 {
                return;
            }
            let pivot = high - 1;
            self.places.swap(middle, pivot);
            let (mut left, mut right) = (low + 1, high - 2);
            loop {
                while self.less(left, pivot) {
                    left += 1;
                }
                while self.less(pivot, right) {
                    right -= 1;
                }
                if right < left {
                    break;
                }
                self.places.swap(left, right);
                (left, right) = (left + 1, right - 1);
            }
            self.places.swap(pivot, left);
            if left - low < high - left {
                self.sort(low, left - 1);
                low = left + 1;
            } else {
                self.sort(left + 1, high);
                high = left - 1;
            }
        }
    }
}

fn worst_list(len: usize) -> Vec<usize> {
    let undecided = len + 1;
    let (places, numbers) = ((0..=len).collect(), vec![undecided; len + 1]);
    let mut adversary = Adversary { places, numbers, undecided, decided: 0, candidate: 0 };
    adversary.sort(1, len);
    adversary.numbers.split_off(1)
}

/// The limits of a script were only checked between instructions: `table.sort` of a worst-case list
/// took a minute, during which the script's lock could be taken long after its time, other scripts
/// had no room, and the node did not stop.
#[test]
fn worst_case_sort_is_stopped_and_writes_nothing() {
    let node = Node::start();
    let mut redis = client(&node);
    let script = "redis.call('set', KEYS[1], 'x') \
                  local list = cjson.decode(ARGV[1]) table.sort(list) return #list";
    let list = format!("{:?}", worst_list(12_000));
    let reply = redis.ask_words(&["EVAL", script, "1", "late", &list]);
    assert!(reply.starts_with("-ERR the script took more than"), "{reply}");
    assert_eq!(redis.ask("EXISTS late"), "0");
    // Other lists are sorted as usual.
    let script = "local list = {3, 1, 2} table.sort(list) \
                  local other = {3, 1, 2} table.sort(other, function(a, b) return a > b end) \
                  return table.concat(list) .. table.concat(other)";
    assert_eq!(redis.ask_words(&["EVAL", script, "0"]), "123321");
    let script = "table.sort({1, 'a'})";
    let reply = redis.ask_words(&["EVAL", script, "0"]);
    assert!(reply.contains("attempt to compare"), "{reply}");
}

/// Each script of a `MULTI` had a second to itself: 1,024 of them took a thread for many minutes.
#[test]
fn scripts_of_one_transaction_share_a_time_limit() {
    let node = Node::start();
    let mut redis = client(&node);
    let slow = "local s = string.rep('x', 2000000) while true do string.find(s, 'y', 1, true) end";
    assert_eq!(redis.ask("MULTI"), "OK");
    for _ in 0..100 {
        assert_eq!(redis.ask_words(&["EVAL", slow, "0"]), "QUEUED");
    }
    // It would time out otherwise.
    assert!(redis.ask("EXEC").starts_with("[-ERR the script took more than"));
}
