//! The doors: each speaks one protocol on its own port. [`DOORS`] is the one list of them.
//!
//! Listening, the connection limit, metrics, settings, flags and the output of `holdfast dev` are
//! all driven by that list: a new door is a new entry. Every door has the same three parts:
//!
//! - `codec`: bytes to frames and back, without I/O. HTTP's frames are hyper's and its bodies JSON;
//!   gRPC's are tonic's and prost's (`crates/proto`); Redis's are `holdfast_redis::resp`,
//!   ZooKeeper's `holdfast_zookeeper::codec`.
//! - `translate`: frames to requests, replies to frames; pure. For Redis, `holdfast_redis`; for
//!   ZooKeeper, `holdfast_zookeeper`.
//! - `serve`: the socket loop.
//!
//! gRPC is served on HTTP's port: the `http` door has its listener, limits and metrics.

mod address;
mod connection_limit;
mod grpc;
mod http;
mod listener;
mod memory;
mod reads;
mod redis;
mod zookeeper;

pub use address::{DoorAddress, DoorAddresses};
pub(crate) use connection_limit::{ConnectionLimit, connections_max};
pub(crate) use listener::Listener;

use crate::authentication::Authenticator;
use crate::engine::Engine;
use crate::metrics::Metrics;
use crate::peers::Membership;
use crate::serve::Boxed;
use crate::tls::Accepting;
use holdfast_gateway::Caller;
use holdfast_node::NodeId;
use std::io;
use std::sync::Arc;

/// All doors. The first can't be disabled or moved: its port is the base for the others.
pub const DOORS: &[Door] = &[http::DOOR, redis::DOOR, zookeeper::DOOR];

/// A protocol on its own port.
#[derive(Debug)]
pub struct Door {
    /// Its name as a flag, as a key in a settings file and as a label in metrics.
    pub name: &'static str,
    /// What messages call its clients.
    pub clients: &'static str,
    /// Its default port, as an offset from the base port.
    pub port_above: u16,
    /// The setting that moves or disables it. `None` if it is always open on the base port.
    pub setting: Option<DoorSetting>,
    /// Precedes its address in the list that `holdfast dev` prints.
    pub shown_as: &'static str,
    /// The same if it speaks TLS.
    pub shown_as_tls: &'static str,
    /// Commands that `holdfast dev` suggests; `{port}` stands for the door's port.
    pub examples: &'static [&'static str],
    /// The same over TLS; `{ca}` stands for the file of the authority.
    pub tls_examples: &'static [&'static str],
    /// What its clients speak over TLS.
    pub(crate) accepting: Accepting,
    /// Sent to a client that does not speak TLS, if the door does.
    pub(crate) needs_tls: &'static [u8],
    /// Serves until the future is dropped, which also drops every connection.
    pub(crate) serve: fn(Opening) -> Boxed<'static, io::Result<()>>,
}

/// The setting that moves or disables a door.
#[derive(Debug)]
pub struct DoorSetting {
    /// The environment variable that corresponds to the flag.
    pub env: &'static str,
    /// The flag's help text.
    pub help: &'static str,
}

/// How many tickets of one line or session are listed.
pub(crate) const TICKETS_SHOWN: usize = 100;

/// The node behind all doors.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) id: NodeId,
    pub(crate) engine: Engine,
    pub(crate) membership: Membership,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) authenticator: Arc<Authenticator>,
}

impl Context {
    /// The same node, on behalf of a client.
    pub(crate) fn for_caller(&self, caller: Caller) -> Self {
        Self { engine: self.engine.for_caller(caller), ..self.clone() }
    }
}

/// Everything a door is opened with.
pub(crate) struct Opening {
    pub(crate) listener: Listener,
    pub(crate) limit: ConnectionLimit,
    pub(crate) context: Context,
    /// Additional host names for this node.
    pub(crate) hosts: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn doors_have_distinct_names_and_ports() {
        let names: BTreeSet<&str> = DOORS.iter().map(|door| door.name).collect();
        let ports: BTreeSet<u16> = DOORS.iter().map(|door| door.port_above).collect();
        assert_eq!((names.len(), ports.len()), (DOORS.len(), DOORS.len()));
        assert!(ports.iter().all(|above| *above < crate::serve::PEER_PORT_ABOVE));
        let fixed: Vec<bool> = DOORS.iter().map(|door| door.setting.is_none()).collect();
        assert!(fixed[0] && !fixed[1..].contains(&true), "the first is the base, the others move");
    }
}
