//! A running Holdfast node: threads, sockets and files around the pure loop of `holdfast-node`.
//!
//! The path of one request: a door (`doors/`) reads it from its socket and turns it into a command;
//! an [`Engine`] posts the command to the loop's inbox; the loop's thread (`engine/driver.rs`)
//! hands it to the gateway (`holdfast-gateway`), runs a turn of the node, passes entries to the
//! disk thread (`engine/disk.rs`) and to the other nodes (`peers/`), and delivers what the gateway
//! completes.

mod activity;
mod audit;
mod authentication;
mod backup;
mod data;
mod doors;
mod engine;
mod key;
mod metrics;
mod node;
mod password;
mod peers;
mod random;
mod restoring;
mod serve;
mod site;
mod sockets;
mod stream;
mod tls;
mod uptime;

pub use backup::{Restoration, Source, restore, verify as verify_backup};
pub use data::{DataDir, First, Rejoined};
pub use doors::{DOORS, Door, DoorAddress, DoorAddresses, DoorSetting};
pub use engine::{Engine, StopReason};
pub use holdfast_gateway::SubmitError;
pub use key::ClusterKey;
pub use node::RunningNode;
pub use password::Password;
pub use peers::{Contact, MemberRequest, Membership, NotDone};
pub use serve::{Boxed, Config, PEER_PORT_ABOVE, Server, ports_are_free};
pub use tls::{Tls, TlsFiles};
