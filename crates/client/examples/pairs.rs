//! Acquires and releases locks for some seconds, and prints the number of pairs per second.
//!
//! `cargo run --release -p holdfast-client --example pairs -- http://127.0.0.1:7400 64 5 [one]`: 64
//! clients with a session each, for 5 seconds, each on a lock of its own or all on one.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "only the session is pure")]
#![allow(clippy::print_stdout, clippy::expect_used, reason = "a program that measures")]

use holdfast_client::Client;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let servers = arguments.next().unwrap_or_else(|| "http://127.0.0.1:7400".to_owned());
    let clients: usize = arguments.next().map_or(16, |n| n.parse().expect("a number of clients"));
    let seconds: u64 = arguments.next().map_or(5, |n| n.parse().expect("a number of seconds"));
    let one = arguments.next().is_some();
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut tasks = JoinSet::new();
    for number in 0..clients {
        let mut servers: Vec<String> = servers.split(',').map(str::to_owned).collect();
        let first = number % servers.len();
        servers.rotate_left(first);
        tasks.spawn(async move {
            let client = Client::connect(servers).await.expect("a client");
            let name = if one { "one".to_owned() } else { format!("own/{number}") };
            let mut took = Vec::new();
            while Instant::now() < until {
                let begun = Instant::now();
                let guard = client.lock(&name).acquire().await.expect("the lock");
                took.push(begun.elapsed());
                guard.release().await.expect("a release");
            }
            took
        });
    }
    let mut took: Vec<Duration> = tasks.join_all().await.into_iter().flatten().collect();
    took.sort_unstable();
    let at = |part: f64| took.get((took.len() as f64 * part) as usize).copied().unwrap_or_default();
    println!(
        "{clients} clients: {:.0} pairs/s, acquire p50 {:?} p99 {:?}",
        took.len() as f64 / seconds as f64,
        at(0.5),
        at(0.99)
    );
}
