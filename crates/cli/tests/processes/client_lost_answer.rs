//! A reply that never arrives: the request's number settles what happened to it.

use crate::client_load::urls;
use crate::client_proxy::{Proxy, Way};
use crate::support::{Cluster, Http, eventually, unique};
use holdfast_client::{Client, Health};
use serde_json::json;
use std::thread;
use std::time::Duration;

/// Would fail if a retry drew another ticket, or if a client took silence for a refusal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retried_acquire_gets_the_same_ticket() {
    let mut cluster = Cluster::start(3);
    let ports = cluster.ports();
    let proxy = Proxy::to(ports[0]);
    let servers: Vec<String> = std::iter::once(proxy.url()).chain(urls(&ports[1..])).collect();
    let client = Client::connect(servers).await.expect("a client");
    let before = client.lock("before").acquire().await.expect("a lock");

    proxy.set(Way::NoAnswers);
    let asks = tokio::spawn({
        let client = client.clone();
        async move { client.lock("seat").wait(Duration::ZERO).acquire().await }
    });
    let holders = || cluster.http.holders(ports[1], "seat");
    let drawn = eventually("the request has had its effect", || holders().first().copied());
    proxy.set(Way::Cut);
    let guard = asks.await.expect("the task ends").expect("the lock is had");
    assert_eq!(guard.token().get(), drawn);
    assert_eq!(holders(), [drawn]);
    assert_eq!((guard.health(), before.health()), (Health::Good, Health::Good));

    // The same for the release: it is certain, and it had one effect.
    proxy.set(Way::Open);
    guard.release().await.expect("it was held");
    let after = client.lock("seat").acquire().await.expect("a lock");
    assert_eq!(after.token().get(), drawn + 1, "a second ticket was drawn in between");
}

/// Would fail if `outcome` forgot a request, or if a retry under the same id drew another ticket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcome_can_be_queried_by_request_id_over_http() {
    let mut cluster = Cluster::start(3);
    let ports = cluster.ports();
    let proxy = Proxy::to(ports[0]);
    let through = proxy.port;
    let body = json!({ "name": "seat", "ttl_ms": 3_600_000, "request_id": unique() });
    proxy.set(Way::NoAnswers);
    let asks = thread::spawn({
        let body = body.clone();
        move || Http::new(Duration::from_secs(60)).post(through, "/v1/grab_lock", &body)
    });
    let drawn = eventually("the request has had its effect", || {
        cluster.http.holders(ports[1], "seat").first().copied()
    });
    proxy.set(Way::Cut);
    let answer = asks.join().expect("the thread ends");
    assert!(answer.is_err(), "the answer was to be lost: {answer:?}");

    let id = json!({ "request_id": body["request_id"] });
    let outcome = cluster.http.post_ok(ports[2], "/v1/outcome", &id);
    assert_eq!(outcome["outcome"], "held", "{outcome}");
    assert_eq!(outcome["grant"]["fencing_token"], drawn, "{outcome}");
    let again = cluster.http.post_ok(ports[1], "/v1/grab_lock", &body);
    assert_eq!(again["fencing_token"], drawn);
    assert_eq!(cluster.http.holders(ports[2], "seat"), [drawn]);
    assert_eq!(cluster.http.grab(ports[0], "another").token, drawn + 1, "one ticket was drawn");
}
