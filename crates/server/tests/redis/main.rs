//! The Redis door of a real server, in this process, as raw sockets see it.
//!
//! No test asserts a time but one: what should happen, happens within [`support::PATIENCE`].
#![allow(clippy::unwrap_used, reason = "a test stops where it can't go on")]

mod resp;
#[allow(dead_code, reason = "the tests of HTTP need more of it")]
#[path = "../http/support.rs"]
mod support;

mod blocking;
mod bounds;
mod frames;
mod hangups;
mod keys;
mod lines;
mod messages;
mod other_doors;
mod passwords;
mod scripts;
mod too_large;
mod transactions;

use resp::Redis;
use support::Node;

/// A client of that node.
fn client(node: &Node) -> Redis {
    Redis::connect(node.port + 1).unwrap()
}
