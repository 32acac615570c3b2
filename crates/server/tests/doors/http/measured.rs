//! /metrics counts what it should, its text can be parsed, and docs/metrics.md lists all of it.

use crate::support::Node;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

const DOC: &str = include_str!("../../../../../docs/metrics.md");

/// A metric family, as parsed from the text.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: String,
    samples: Vec<(String, f64)>,
}

/// Parses the whole text, and panics at anything that is not in order.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let body = text.strip_suffix("# EOF\n").expect("the text ends with # EOF");
    let mut current = String::new();
    for line in body.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a name and its help");
            current = name.to_owned();
            let family = families.entry(current.clone()).or_default();
            assert!(family.help.is_empty(), "{name} is listed twice");
            family.help = help.to_owned();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a name and its type");
            assert_eq!(name, current);
            families.get_mut(name).unwrap().kind = kind.to_owned();
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a series and its value");
            let family = families.get_mut(&current).expect("HELP and TYPE come first");
            let rest = series.strip_prefix(&current).expect("a sample of this family");
            let suffix = rest.split('{').next().unwrap();
            let allowed: &[&str] = match family.kind.as_str() {
                "counter" => &["_total"],
                "gauge" => &[""],
                "histogram" => &["_bucket", "_sum", "_count"],
                other => panic!("{current} is a {other}"),
            };
            assert!(allowed.contains(&suffix), "{line}");
            family.samples.push((series.to_owned(), value.parse().expect(line)));
        }
    }
    for (name, family) in &families {
        let Family { kind, help, .. } = family;
        assert!(!kind.is_empty() && !help.is_empty(), "{name} lacks its type or help");
        if kind == "histogram" {
            whole(name, family);
        }
    }
    families
}

/// The buckets of a histogram increase, and the last one includes everything.
fn whole(name: &str, family: &Family) {
    let buckets: Vec<f64> = family
        .samples
        .iter()
        .filter(|(series, _)| series.contains("_bucket"))
        .map(|(_, count)| *count)
        .collect();
    assert!(buckets.is_sorted() && buckets.len() > 10, "{name}: {buckets:?}");
    let count = family.samples.iter().find(|(series, _)| series.ends_with("_count"));
    assert_eq!(count.map(|(_, count)| count), buckets.last());
}

#[test]
fn events_are_counted() {
    let node = Node::start();
    let value = |name: &str| node.metric(&format!("holdfast_{name}"));
    let first = node.grab("seat");
    node.post("/v1/grab_lock", &json!({ "name": "seat", "ttl_ms": 1, "wait_ms": 20 }))
        .fails(409, "not_acquired");
    assert_eq!((value("locks"), value("holders"), value("waiters")), (1.0, 1.0, 0.0));
    assert_eq!((value("grants_total"), value("wait_seconds_count")), (1.0, 1.0));
    assert_eq!(value("endings_total{how=\"timed_out\",held=\"false\"}"), 1.0);
    assert_eq!((value("hold_seconds_count"), value("longest_line")), (0.0, 1.0));

    let waits = json!({ "name": "seat", "ttl_ms": 60_000, "wait_ms": 60_000 });
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| node.post("/v1/grab_lock", &waits).ok());
        }
        crate::support::eventually("both wait", || (value("waiters") == 2.0).then_some(()));
        assert_eq!(value("longest_line"), 3.0);
        assert!(value("connections{door=\"http\"}") >= 3.0);
        node.post("/v1/release_lock", &Node::own(&first)).ok();
        let force = json!({ "name": "seat", "by": "me", "reason": "test" });
        crate::support::eventually("one holds", || (value("waiters") == 1.0).then_some(()));
        node.post("/v1/force", &force).ok();
    });
    assert_eq!(value("endings_total{how=\"released\",held=\"true\"}"), 1.0);
    assert_eq!(value("endings_total{how=\"forced\",held=\"true\"}"), 1.0);
    assert_eq!((value("grants_total"), value("hold_seconds_count")), (3.0, 2.0));
    assert_eq!((value("locks_needing_recovery"), value("longest_line")), (1.0, 1.0));

    let token = node.get("/v1/lock?name=seat").ok()["holders"][0]["token"].clone();
    node.post("/v1/raise", &json!({ "key": "k", "fencing_token": token })).ok();
    node.post("/v1/sessions/open", &json!({ "ttl_ms": 60_000 })).ok();
    assert_eq!(value("register_keys"), 1.0);
    assert_eq!(value("last_token"), token.as_f64().unwrap());
    // The node has a session too.
    assert_eq!(value("sessions"), 2.0);

    assert_eq!((value("raft_leads"), value("raft_has_leader")), (1.0, 1.0));
    assert_eq!((value("raft_members"), value("raft_voters")), (1.0, 1.0));
    assert!(value("raft_term") >= 1.0);
    let status = node.get("/v1/status").ok();
    assert!(value("raft_applied_index") >= status["applied"].as_f64().unwrap());
    assert!(value("raft_committed_index") >= status["applied"].as_f64().unwrap());
    for histogram in ["fsync_seconds", "apply_seconds", "turn_seconds", "answer_seconds"] {
        assert!(value(&format!("{histogram}_count")) >= 5.0, "{histogram}");
        assert!(value(&format!("{histogram}_sum")) > 0.0, "{histogram}");
    }
    assert!(value("answer_seconds_count") <= value("requests_total"));
    assert!(value("entries_total") >= 5.0);
}

/// Fails if Prometheus could not parse the text, or if it grew with the names that clients use.
#[test]
fn metrics_text_is_valid_and_bounded() {
    let node = Node::start();
    let before = parse(&node.get("/metrics").text);
    for number in 0..50 {
        let grab =
            json!({ "name": format!("name-{number}"), "ttl_ms": 60_000, "label": "label-7" });
        node.post("/v1/grab_lock", &grab).ok();
    }
    let reply = node.get("/metrics");
    let kind = reply.headers["content-type"].to_str().unwrap();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    let after = parse(&reply.text);
    assert!(!reply.text.contains("holdfast_commands_total{door=\"http\"}"), "it has no commands");
    assert!(before.keys().eq(after.keys()));
    assert!(!reply.text.contains("name-") && !reply.text.contains("label-"), "{}", reply.text);
    let series: usize = after.values().map(|family| family.samples.len()).sum();
    assert!(series < 300, "{series} series");
}

/// The table of docs/metrics.md: name, kind.
#[test]
fn every_metric_is_documented() {
    let node = Node::start();
    let served = parse(&node.get("/metrics").text);
    let served: BTreeSet<(String, String)> =
        served.into_iter().map(|(name, family)| (name, family.kind)).collect();
    let rows = DOC.lines().filter_map(|line| line.strip_prefix("| `holdfast_"));
    let told: BTreeSet<(String, String)> = rows
        .map(|row| {
            let mut cells = row.split('|').map(str::trim);
            let name = cells.next().unwrap().trim_end_matches('`').trim_end_matches("_total");
            (format!("holdfast_{name}"), cells.next().unwrap().to_owned())
        })
        .collect();
    assert_eq!(told, served);
}
