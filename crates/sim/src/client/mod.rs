//! A simulated client: the real session machine, on a clock of its own, and an application that takes
//! locks, works under them, gives up and dies at any moment.

mod app;
mod guard;

pub(crate) use app::{App, ClientEvent};
pub(crate) use guard::Guard;

use crate::rng::Rng;
use crate::world::WireId;
use bytes::Bytes;
use holdfast_client::session::{
    Config, ConnectionId, Input, Lease, Moment, QueryId, SessionState, StreamId, WatchId,
};
use holdfast_core::SessionId;
use holdfast_node::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a request may take that has no limit of its own.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Client {
    pub(crate) number: usize,
    /// Counts processes: one that died is followed by another.
    pub(crate) life: u64,
    /// Its clock runs so many parts in a thousand of the true one.
    rate: u64,
    pub(crate) ttl_ms: u64,
    pub(crate) servers: Vec<NodeId>,
    pub(crate) session: SessionState,
    pub(crate) app: App,
    /// What has arrived since its last turn.
    pub(crate) inputs: Vec<(Option<StreamId>, Input)>,
    pub(crate) wires: BTreeMap<ConnectionId, WireId>,
    pub(crate) streams: BTreeMap<StreamId, WireId>,
    pub(crate) queries: BTreeMap<QueryId, WireId>,
    pub(crate) watches: BTreeMap<WatchId, Watch>,
    /// Which session each stream said it is.
    pub(crate) opened: BTreeMap<StreamId, SessionId>,
    /// The leases of its sessions, in order.
    pub(crate) leases: Vec<Lease>,
    pub(crate) paused_until_us: u64,
    /// When its next turn is, and the number of that event.
    pub(crate) turn: Option<(u64, u64)>,
    /// What it got done since somebody last looked.
    pub(crate) done: u64,
}

/// The watch of a lock whose ticket has outlived its session.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) name: Bytes,
    pub(crate) token: u64,
    pub(crate) wire: Option<WireId>,
    pub(crate) begun: bool,
}

impl Client {
    pub(crate) fn new(number: usize, life: u64, rng: &mut Rng, nodes: &[NodeId]) -> Self {
        let mut servers = nodes.to_vec();
        let first = rng.range(0, servers.len() as u64) as usize;
        servers.rotate_left(first);
        let rate = rng.range(995, 1_006);
        let ttl_ms = rng.range(2_000, 8_000);
        let config = Config {
            servers: servers.iter().map(|id| format!("node-{id}")).collect(),
            ttl: Duration::from_millis(ttl_ms),
            label: None,
            timeout: TIMEOUT,
        };
        Self {
            number,
            life,
            rate,
            ttl_ms,
            servers,
            session: SessionState::new(config, Moment::from_nanos(0)),
            app: App::new(number, life, rng),
            inputs: Vec::new(),
            wires: BTreeMap::new(),
            streams: BTreeMap::new(),
            queries: BTreeMap::new(),
            watches: BTreeMap::new(),
            opened: BTreeMap::new(),
            leases: Vec::new(),
            paused_until_us: 0,
            turn: None,
            done: 0,
        }
    }

    /// The client's own clock, which also runs while it is paused.
    pub(crate) fn moment(&self, at_us: u64) -> Moment {
        Moment::from_nanos(at_us * self.rate)
    }

    /// The true time when its clock shows that moment.
    pub(crate) fn at_us(&self, moment: Moment) -> u64 {
        moment.nanos().div_ceil(self.rate)
    }

    /// When there is something to do next.
    pub(crate) fn next_turn_us(&self) -> u64 {
        let session = self.session.wake_at().map(|at| self.at_us(at));
        let next = session.into_iter().chain([self.app.next_us()]).min().unwrap_or(u64::MAX);
        next.max(self.paused_until_us)
    }

    /// Whether it is being closed, and everything that it asked for is settled.
    pub(crate) fn has_closed(&self) -> bool {
        let sizes = self.session.sizes();
        self.app.closing && sizes.queued + sizes.pending + sizes.orphans == 0
    }

    pub(crate) fn is_good(&self, guard: &Guard, now_us: u64) -> bool {
        guard.is_good(&self.leases, self.moment(now_us))
    }
}
