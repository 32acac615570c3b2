//! Names of any bytes: what is shown can be sent, in bodies and in queries.

use crate::support::Node;
use serde_json::{Value, json};

fn percent(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn name_encodings_refer_to_the_same_lock() {
    let names: [(&[u8], &str); 6] = [
        (b"caf\xe9", "caf\u{fffd}e9"),
        (b"\xff\x00\xfe", "\u{fffd}ff\0\u{fffd}fe"),
        ("\u{fffd}".as_bytes(), "\u{fffd}ef\u{fffd}bf\u{fffd}bd"),
        ("seat é/12 A&b=c+d%".as_bytes(), "seat é/12 A&b=c+d%"),
        (b" ", " "),
        (&[0xc3; 512], &"\u{fffd}c3".repeat(512)),
    ];
    let node = Node::start();
    for (bytes, shown) in names {
        let grant = node.grab(shown);
        assert_eq!(grant["names"], json!([shown]));
        for query in [percent(bytes), percent(shown.as_bytes())] {
            let lock = node.get(&format!("/v1/lock?name={query}")).ok();
            assert_eq!(lock["name"], shown);
            assert_eq!(lock["holders"][0]["token"], grant["fencing_token"], "{shown}");
        }
        let listed = node.get(&format!("/v1/locks?prefix={}", percent(bytes))).ok();
        assert_eq!(listed["locks"][0]["name"], shown);
        node.post("/v1/grab_lock", &json!({ "name": shown, "ttl_ms": 1_000 }))
            .fails(409, "not_acquired");
        node.post("/v1/release_lock", &Node::own(&grant)).ok();
    }
}

#[test]
fn paging_continues_after_any_name() {
    let node = Node::start();
    let names = ["a", "b\u{fffd}ff", "c d", "e"];
    for name in names {
        node.grab(name);
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = node.get(&format!("/v1/locks?limit=1{after}")).ok();
        seen.extend(page["locks"].as_array().unwrap().iter().map(|lock| lock["name"].clone()));
        let Value::String(next) = &page["next_after"] else { break };
        after = format!("&after={}", percent(next.as_bytes()));
    }
    assert_eq!(seen, names.map(Value::from));
}

#[test]
fn labels_notes_and_values_survive_a_round_trip() {
    let node = Node::start();
    let odd = "x\u{fffd}80\u{0}\"\\é";
    let grab = json!({ "name": "seat", "ttl_ms": 60_000, "label": odd, "note": odd });
    let grant = node.post("/v1/grab_lock", &grab).ok();
    let holder = node.get("/v1/lock?name=seat").ok()["holders"][0].clone();
    assert_eq!((&holder["label"], &holder["note"]), (&json!(odd), &json!(odd)));
    let put = json!({ "key": odd, "value": odd, "fencing_token": grant["fencing_token"] });
    let fence = node.post("/v1/do_external_operation", &put).ok();
    assert_eq!((&fence["key"], &fence["value"]), (&json!(odd), &json!(odd)));
}

#[test]
fn tokens_may_be_digit_strings() {
    let node = Node::start();
    let grant = node.grab("seat");
    let mut own = Node::own(&grant);
    own["fencing_token"] = grant["fencing_token"].to_string().into();
    let released = node.post("/v1/release_lock", &own).ok();
    assert_eq!(released["released"], grant["fencing_token"], "answers are numbers");
}
