//! The ZooKeeper door and its clients, without sockets: `door` is a host's side of the connections,
//! the rest is a client.
//!
//! - `client`: connects, keeps a session alive, goes on with it at another node, begins again when it
//!   has expired; `replies`: what it receives
//! - `lock`: the recipe of kazoo's locks, on top of that
//! - `plain`: reads and writes of a few shared znodes, with watches

mod client;
mod door;
mod lock;
mod plain;
mod replies;

pub(crate) use client::{Client, Context, Do};
pub(crate) use door::{Door, ZooKeeperTask};

use holdfast_core::{Acl, NodeData, NodeKind, NodeOp};
use holdfast_zookeeper::codec::Request;

/// What a client wants with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    SetWatches,
    Lock,
    Plain,
    Close,
}

fn create(path: &str, data: &str, kind: NodeKind, sequential: bool) -> Request {
    let op = NodeOp::Create {
        path: path.to_owned(),
        data: NodeData::parse(data.as_bytes()).ok(),
        acl: vec![Acl::open()],
        kind,
        sequential,
    };
    Request::Write { op, stat: true }
}

fn delete(path: &str) -> Request {
    Request::Write { op: NodeOp::Delete { path: path.to_owned(), version: None }, stat: false }
}
