//! The client against a real server, in this process.
#![allow(clippy::unwrap_used, reason = "a test stops where it can't go on")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "only the session is pure")]
#![allow(clippy::print_stdout, reason = "the guide shows programs that print")]

#[path = "../support/proxy.rs"]
mod proxy;
#[path = "../support/server.rs"]
mod server;

mod blocking;
mod cancel;
mod cancel_random;
mod connecting;
mod guide;
mod large;
mod locks;
mod lost_session;
mod news;
mod others;
mod runtimes;
mod sessions;
mod sharing;
mod shutdown;
mod streams;
mod trouble;

use holdfast_proto::v1::holdfast_client::HoldfastClient;
use server::Node;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint};

/// Nothing here takes this long unless it is broken.
const LONG: Duration = Duration::from_secs(30);

/// The future must end in time.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(LONG, work).await.expect("this takes too long")
}

/// For calls that the client does not have: revoke and force.
async fn operator(node: &Node) -> HoldfastClient<Channel> {
    let server = Endpoint::from_shared(node.url.clone()).unwrap();
    HoldfastClient::new(server.connect().await.unwrap())
}

/// Asks repeatedly until the answer is yes.
async fn eventually(what: &str, mut ask: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !ask().await {
        assert!(Instant::now() < until, "this did not happen: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}
