//! The Redis door, as seen through raw sockets.

pub(crate) mod resp;

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

use crate::support::Node;
use resp::Redis;

/// Connects a client to that node.
fn client(node: &Node) -> Redis {
    Redis::connect(node.port + 1).unwrap()
}
