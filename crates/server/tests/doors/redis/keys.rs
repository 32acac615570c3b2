//! All keys: listed page by page, and flushed step by step.

use super::client;
use crate::support::Node;
use std::collections::BTreeSet;

#[test]
fn scan_finds_every_key_once_and_flushdb_leaves_other_doors_alone() {
    const KEYS: usize = 3_000;
    let node = Node::start();
    node.grab("native");
    let mut redis = client(&node);
    let lines: Vec<String> = (0..KEYS).map(|at| format!("SET key-{at} x")).collect();
    redis.send(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    for _ in 0..KEYS {
        assert_eq!(redis.receive(), "OK");
    }
    redis.send(&["SELECT 1", "SET elsewhere x", "SELECT 0"]);
    for _ in 0..3 {
        assert_eq!(redis.receive(), "OK");
    }
    assert_eq!(redis.ask("DBSIZE"), (KEYS + 1).to_string());
    assert_eq!(redis.ask("KEYS key-299?").split(' ').count(), 10);
    let (mut found, mut pages, mut cursor) = (BTreeSet::new(), 0, "0".to_owned());
    loop {
        let page = redis.ask(&format!("SCAN {cursor} MATCH key-* COUNT 300"));
        let page = page.trim_start_matches('[').trim_end_matches(']').replace('[', "");
        let mut words = page.split(' ');
        cursor = words.next().unwrap().to_owned();
        pages += 1;
        for key in words.filter(|word| !word.is_empty()) {
            assert!(found.insert(key.to_owned()), "{key} is listed twice");
        }
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), KEYS);
    assert!(pages > 5, "{pages} pages");
    assert_eq!(redis.ask("FLUSHDB"), "OK");
    assert_eq!(redis.ask("KEYS *"), "[native]");
    redis.send(&["SELECT 1", "GET elsewhere", "FLUSHALL", "GET elsewhere"]);
    for expected in ["OK", "x", "OK", "nil"] {
        assert_eq!(redis.receive(), expected);
    }
    assert_eq!(node.get("/v1/lock?name=native").ok()["holding"], 1);
}
