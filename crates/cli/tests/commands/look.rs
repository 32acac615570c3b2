//! Inspecting locks and the cluster.

use crate::cli::Shell;
use crate::support::eventually;
use serde_json::{Value, json};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// Would fail if a program could not rely on the fields of a listing.
#[test]
fn listing_has_the_documented_fields() {
    let shell = Shell::with_nodes(1);
    let grab = |args: &[&str]| shell.json(["acquire", "--ttl", "60s", "--json"].iter().chain(args));
    grab(&["shop/a", "--label", "ana"]);
    grab(&["shop/b", "--shared", "--label", "bo"]);
    grab(&["shop/b", "--shared", "--label", "cy"]);
    grab(&["other", "--permits", "3"]);
    let waiter = shell.lock("shop/a", "true");
    shell.waiting("shop/a", 1);

    let listed = shell.json(["ls", "shop/", "--json"]);
    let listed = listed.as_array().expect("an array");
    assert_eq!(listed.len(), 2);
    let fields = ["ended", "held_ms", "holder", "mode", "name", "token", "waiting"];
    listed.iter().for_each(|lock| {
        let mut found = keys(lock);
        found.sort_unstable();
        assert_eq!(found, fields);
    });
    assert_eq!(
        (&listed[0]["name"], &listed[0]["token"], &listed[0]["holder"], &listed[0]["waiting"]),
        (&json!("shop/a"), &json!(1), &json!("ana"), &json!(1))
    );
    assert_eq!(listed[1]["mode"], "shared");

    let table = shell.run(["ls"]).out;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("NAME") && lines.len() == 4, "{table}");
    assert!(table.contains("bo and 1 more") && table.contains("permit of 3"), "{table}");
    assert!(!table.contains('\x1b'), "colour is only for a terminal: {table:?}");
    assert_eq!(shell.json(["ls", "--limit", "2", "--json"]).as_array().map(Vec::len), Some(2));
    drop(waiter);
}

/// Would fail if a line were shown without places, or if `why` did not follow it.
#[test]
fn show_prints_places_and_reasons() {
    let shell = Shell::with_nodes(1);
    shell.json(["acquire", "a", "--ttl", "60s", "--label", "ana", "--note", "paid", "--json"]);
    let _first = shell.lock("a --label bo", "true");
    shell.waiting("a", 1);
    let _second = shell.lock("a --label cy", "true");
    shell.waiting("a", 2);
    let shown = shell.run(["show", "a"]).out;
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "a  1 holding, 2 waiting");
    for (line, begins, has) in [(2, "held", "ana"), (3, "1 ", "bo"), (4, "2 ", "cy")] {
        assert!(lines[line].starts_with(begins) && lines[line].contains(has), "{shown}");
    }
    let why = shell.run(["why", "a"]).out;
    assert!(why.lines().any(|line| line.contains("bo") && line.contains("ana")), "{why}");
    assert_eq!(shell.run(["why", "nobody"]).out, "nobody waits for nobody\n");
    assert_eq!(shell.json(["why", "a", "--json"])["links"][0]["front"], 1);

    let history = shell.run(["history", "a"]).out;
    assert!(history.contains("granted") && history.contains("ana"), "{history}");
    let sessions = shell.json(["sessions", "--json"]);
    let kinds: Vec<&Value> =
        sessions.as_array().expect("an array").iter().map(|s| &s["kind"]).collect();
    assert!(kinds.contains(&&json!("client")) && kinds.contains(&&json!("node")), "{sessions}");
}

/// Would fail if a name could control the terminal of a user who lists it.
#[test]
fn hostile_names_are_escaped() {
    let shell = Shell::with_nodes(1);
    shell.json(["acquire", "a\x1b[2Jb", "--ttl", "60s", "--label", "x\ny", "--json"]);
    for args in [["ls", "--limit=9"], ["show", "a\x1b[2Jb"], ["history", "a\x1b[2Jb"]] {
        let printed = shell.run(args);
        assert!(!printed.out.contains('\x1b') && printed.code == Some(0), "{printed:?}");
    }
}

/// Would fail if `status` needed every node, or reported one node's view as that of the others.
#[test]
fn status_comes_from_each_node() {
    let mut shell = Shell::with_nodes(3);
    let status = shell.json(["status", "--json"]);
    assert_eq!(keys(&status), ["leader", "nodes"]);
    let nodes = status["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 3);
    for node in nodes {
        let mut found = keys(node);
        found.sort_unstable();
        assert_eq!(found, ["applied", "http", "id", "role"]);
        assert!(node["applied"].as_u64() > Some(0), "{status}");
    }
    let dead = shell.cluster.follower();
    let id = shell.cluster.nodes[dead].id(&shell.cluster.http);
    shell.cluster.nodes[dead].kill();
    let port = shell.cluster.ports()[0];
    let one = format!("http://127.0.0.1:{port}");
    let printed = shell.run(["status", "--server", &one]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let row = printed.out.lines().find(|line| line.trim_start().starts_with(&id.to_string()));
    assert!(row.is_some_and(|row| row.contains("does not answer")), "{printed:?}");
}

/// Would fail if an event were missed, or if a count did not end the watch.
#[test]
fn watch_prints_events_as_they_happen() {
    let shell = Shell::with_nodes(1);
    let watch = shell.start(["watch", "--prefix", "shop/", "--json", "--count", "3"]);
    // Events are reported from the start of the watch on: take locks until it has seen enough.
    eventually("the watch stands", || {
        let printed = shell.lock("shop/a", "true").ended();
        assert_eq!(printed.code, Some(0), "{printed:?}");
        watch.has_ended().then_some(())
    });
    let printed = watch.ended();
    let events: Vec<Value> =
        printed.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(events.len(), 3, "{printed:?}");
    assert!(events.iter().any(|event| event["event"] == "granted"), "{printed:?}");
    assert!(events.iter().all(|event| event["names"] == json!(["shop/a"])), "{printed:?}");
    assert!(events.iter().all(|event| event.get("secret").is_none()), "{printed:?}");
}
