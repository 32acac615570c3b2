//! The description at /openapi.json matches this server.

use crate::support::Node;
use serde_json::Value;
use std::collections::BTreeSet;

const ROUTER: &str = include_str!("../../../src/doors/http/serve/mod.rs");

/// The paths and methods of the router, from its source.
fn routes() -> BTreeSet<(String, String)> {
    let routes = ROUTER.split(".route(\"").skip(1).map(|rest| {
        let (path, rest) = rest.split_once("\", ").unwrap();
        let (method, _) = rest.split_once('(').unwrap();
        (method.to_owned(), path.to_owned())
    });
    routes.collect()
}

/// Fails if an endpoint is added but not described, or described but not served.
#[test]
fn every_route_is_described() {
    let node = Node::start();
    let described = node.get("/openapi.json").ok();
    let paths = described["paths"].as_object().unwrap().iter();
    let described: BTreeSet<(String, String)> = paths
        .flat_map(|(path, calls)| {
            let methods = calls.as_object().unwrap().keys();
            methods.map(move |method| (method.clone(), path.clone()))
        })
        .collect();
    assert!(described.len() > 30);
    assert_eq!(described, routes());
}

/// Every reference within the description.
fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_reference_resolves_and_nothing_is_unused() {
    let node = Node::start();
    let described = node.get("/openapi.json").ok();
    let mut used = BTreeSet::new();
    references(&described, &mut used);
    let mut there = BTreeSet::new();
    for kind in ["schemas", "parameters", "responses"] {
        let components = described["components"][kind].as_object().unwrap();
        there.extend(components.keys().map(|name| format!("#/components/{kind}/{name}")));
    }
    assert_eq!(used, there.iter().map(String::as_str).collect());
}

#[test]
fn root_page_links_resolve() {
    let node = Node::start();
    let page = node.get("/");
    assert_eq!(page.status, 200);
    assert!(page.headers["content-type"].to_str().unwrap().starts_with("text/html"));
    let links: Vec<&str> =
        page.text.split("href=\"").skip(1).map(|rest| rest.split_once('"').unwrap().0).collect();
    assert!(links.len() > 5, "{}", page.text);
    for link in links {
        assert_eq!(node.get(link).status, 200, "{link}");
    }
}
