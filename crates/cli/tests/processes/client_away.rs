//! What happens to a holder while it can't reach any server.

use crate::client_proxy::{Proxy, Way};
use crate::support::Cluster;
use holdfast_client::{Client, Health};
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;

/// Would fail if a holder only received requests to release while it is connected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_receives_revocation_requests_after_reconnecting() {
    let mut cluster = Cluster::start(1);
    let port = cluster.ports()[0];
    let proxy = Proxy::to(port);
    let client = Client::builder().session_ttl(Duration::from_mins(1));
    let client = client.connect([proxy.url()]).await.expect("a client");
    let [seat, other] = ["seat", "other"].map(|name| client.lock(name));
    let seat = seat.acquire().await.expect("a lock");
    let other = other.acquire().await.expect("a lock");

    proxy.set(Way::Cut);
    let revocation = json!({
        "name": "seat", "by": "operator", "reason": "maintenance", "within_ms": 600_000
    });
    cluster.http.post_ok(port, "/v1/revoke", &revocation);
    proxy.set(Way::Open);

    let asked = timeout(Duration::from_secs(30), seat.asked_to_let_go()).await;
    let asked = asked.expect("it hears that it was asked");
    assert_eq!((&asked.by[..], &asked.reason[..]), (&b"operator"[..], &b"maintenance"[..]));
    assert!(!asked.force && asked.within > Duration::from_mins(9), "{asked:?}");
    assert_eq!(seat.health(), Health::Good, "it was only asked");
    let nobody_asked = timeout(Duration::from_millis(200), other.asked_to_let_go()).await;
    assert!(nobody_asked.is_err(), "{nobody_asked:?}");
}
