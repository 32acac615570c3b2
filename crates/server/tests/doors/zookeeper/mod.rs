//! The ZooKeeper door, as seen through raw sockets.

pub(crate) mod client;

mod bounds;
mod frames;
mod locks;
mod passwords;
mod sessions;
mod watches;
mod words;

use crate::support::Node;
use client::Zk;

/// Long enough for a client that does not ping in between.
const LONG_MS: i32 = 60_000;

/// Where ZooKeeper clients come in at that node.
fn port(node: &Node) -> u16 {
    node.port + 2
}

/// A client with a session of its own.
fn client(node: &Node) -> Zk {
    Zk::open(port(node), LONG_MS).unwrap()
}
