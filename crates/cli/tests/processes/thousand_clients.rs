//! A thousand clients wait in line for one lock, on three nodes.

use crate::support::{Cluster, Held, Http, eventually, tokens, unique};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const CLIENTS: usize = 1_000;

/// One in this many holders looks at the line while it holds the lock.
const LOOKS_EVERY: usize = 20;

/// Would fail if a waiter were forgotten, overtaken or served twice, or if a release woke more than
/// one.
#[test]
fn thousand_clients_are_served_once_and_in_order() {
    let mut cluster = Cluster::start(3);
    let ports = cluster.ports();
    let first = cluster.http.grab(ports[0], "one");
    let served: Arc<Mutex<Vec<u64>>> = Arc::default();
    let client = |number: usize| {
        let (served, port) = (served.clone(), ports[number % ports.len()]);
        let run = move || wait_and_serve(port, &served);
        let thread = thread::Builder::new().stack_size(512 << 10);
        thread.spawn(run).expect("a thread can be started")
    };
    let clients: Vec<_> = (0..CLIENTS).map(client).collect();
    let look = || cluster.http.get_ok(ports[1], "/v1/lock?name=one");
    eventually("all stand in line", || (look()["waiting"] == CLIENTS).then_some(()));
    assert!(served.lock().is_ok_and(|served| served.is_empty()), "served while it was held");

    cluster.http.let_go(ports[0], &first);
    for client in clients {
        client.join().expect("a client was not served as it should be");
    }
    let served = served.lock().expect("nobody panicked");
    assert_eq!(served.len(), CLIENTS);
    assert!(served[0] > first.token);
    assert!(served.is_sorted_by(|one, next| one < next), "overtaken: {served:?}");
    assert_eq!((look()["holding"].clone(), look()["waiting"].clone()), (json!(0), json!(0)));
}

fn wait_and_serve(port: u16, served: &Mutex<Vec<u64>>) {
    let http = Http::new(Duration::from_secs(60));
    let body = json!({
        "name": "one", "ttl_ms": 600_000, "wait_ms": 600_000, "request_id": unique(),
    });
    let grant = http.post_ok(port, "/v1/grab_lock", &body);
    let held = Held::of("one", &grant);
    let place = {
        let mut served = served.lock().expect("nobody panicked");
        served.push(held.token);
        served.len()
    };
    if place.is_multiple_of(LOOKS_EVERY) {
        let line = http.get_ok(port, "/v1/lock?name=one");
        assert_eq!(tokens(&line["holders"]), [held.token], "not the only holder");
        assert_eq!(line["waiting"], CLIENTS - place, "more than one was woken");
    }
    http.let_go(port, &held);
}
