//! A running Holdfast node: threads, sockets and files around the pure loop of `holdfast-node`.
//!
//! The story of one request: a door reads it from its socket and makes a command of it; a
//! [`Handle`] puts that into the loop's inbox; the loop's thread (`engine/driver.rs`) lets the node
//! decide, hands entries to the disk thread (`engine/disk.rs`) and to the other nodes (`peers/`),
//! and when the entry is applied it tells whoever waits.

mod activity;
mod api;
mod backup;
mod connection;
mod data;
mod engine;
mod failure;
mod grpc;
mod http;
mod key;
mod metrics;
mod node;
mod password;
mod peers;
mod random;
mod redis;
mod restoring;
mod serve;
mod site;
mod sockets;
mod times;
mod uptime;
mod waits;

pub use backup::{Restoration, Source, restore, verify as verify_backup};
pub use data::{First, Place, Rejoined};
pub use engine::{Answered, End, Handle, Trouble, Turn};
pub use key::ClusterKey;
pub use node::Running;
pub use password::Password;
pub use peers::{Contact, Membership, NotDone, Question};
pub use serve::{
    Boxed, Config, PEER_PORT_ABOVE, REDIS_PORT_ABOVE, RedisDoor, Server, ports_are_free,
};
