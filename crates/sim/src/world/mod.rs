//! A whole cluster and its clients in one thread: virtual time, one queue of events, one seed.
//!
//! What happens stands here; what comes of it, in the files beside: `nodes.rs` does what a real
//! driver does for each node and its gateway, `doors.rs` what a server's doors do, `wires.rs` carries
//! messages between callers and nodes, `clients.rs` drives the clients' sessions, `zookeeper.rs` and
//! `zookeeper_door.rs` the clients of the ZooKeeper door and its connections, `raw.rs` makes calls
//! without a session, `operator.rs` changes the membership, `trouble.rs` makes the faults, some of which
//! are the `stories.rs` of several.

mod clients;
mod doors;
mod nodes;
mod operator;
mod raw;
mod stories;
mod trouble;
mod wires;
mod zookeeper;
mod zookeeper_door;

pub(crate) use wires::{Status, Up, WireId};

use crate::checks::{Checks, Violation, liveness};
use crate::client::Client;
use crate::faults::Tally;
use crate::host::{Host, SnapshotInTransit};
use crate::network::Network;
use crate::raw::{Raw, RawCall, RawHolder, RawKind, RawSession};
use crate::rng::Rng;
use crate::trace::Trace;
use crate::zookeeper::Client as ZooKeeperClient;
use bytes::Bytes;
use holdfast_client::session::{CallId, WatchId};
use holdfast_core::Token;
use holdfast_node::{Change, Cluster, LEVEL, NodeId};
use holdfast_zookeeper::ClientId;
use std::collections::BTreeMap;
use wires::Wire;
use zookeeper::ZOOKEEPER_CLIENTS;

/// Clients in a run.
pub(crate) const CLIENTS: usize = 10;
/// How long faults happen, and how long they are over.
const TROUBLE_US: u64 = 300_000_000;
const CALM_US: u64 = 60_000_000;

/// How a run is made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Keep words of what happens.
    pub(crate) wordy: bool,
}

/// What came of a run.
#[derive(Debug)]
pub(crate) struct RunReport {
    pub(crate) violation: Option<Violation>,
    pub(crate) trace: Trace,
    pub(crate) faults: Tally,
    pub(crate) operations: u64,
    pub(crate) simulated_us: u64,
}

enum Event {
    Turn(NodeId, u64),
    Deliver {
        from: NodeId,
        to: NodeId,
        bytes: Vec<u8>,
    },
    HungUp {
        from: NodeId,
        to: NodeId,
    },
    DiskDone(NodeId, u64),
    DiskRetry(NodeId, u64),
    HasRoom(NodeId),
    SnapshotDone(NodeId, u64),
    ParcelArrives {
        from: NodeId,
        to: NodeId,
        parcel: Box<SnapshotInTransit>,
    },
    Client(usize),
    /// A client of the ZooKeeper door has its turn.
    ZooKeeperClient(usize),
    /// The thread of a connection of the ZooKeeper door has time again.
    PumpZooKeeper(NodeId, ClientId),
    /// A frame arrives at a node.
    Up(WireId),
    /// A frame arrives at a client.
    Down(WireId),
    WatchAgain {
        client: usize,
        life: u64,
        watch: WatchId,
    },
    /// Somebody calls without a session.
    Raw,
    /// Something more under the request id of an earlier call.
    RawAgain(Box<RawKind>),
    /// The owner of a session sends a heartbeat by hand.
    Heartbeat(Box<RawSession>),
    /// An operator breaks this lock.
    Force(Bytes),
    /// A caller does not want to wait any longer.
    HangUp(u64),
    Trouble,
    Restart(NodeId),
    Heal,
    LetGo,
    LetClientsGo,
    CutOff(NodeId),
    PowerFails,
    PauseClient(usize),
    /// Somebody reads at this node.
    ReadAt(NodeId),
    /// Somebody makes two calls at once at this node.
    PairAt(NodeId),
    /// Somebody opens a session, and will send so many heartbeats by hand.
    OpenByHand(u32),
    /// A session gets a heartbeat at this node.
    HeartbeatAt(NodeId),
    LoseConnections(NodeId),
    /// A client abandons a call.
    Abandon {
        client: usize,
        life: u64,
        call: CallId,
    },
    /// Somebody without a session acquires a lock at this node.
    AskAtDoor(NodeId),
    /// A caller without a session lets go.
    DoorReleases(Token),
    Operate,
    Quiet,
}

pub(crate) struct World {
    now_us: u64,
    /// Boxed, because the map moves its content about.
    queue: BTreeMap<(u64, u64), Box<Event>>,
    next_event: u64,
    rng: Rng,
    hosts: BTreeMap<NodeId, Host>,
    network: Network,
    /// What links hold back, in the order in which it was sent.
    held: Vec<Event>,
    clients: Vec<Client>,
    zookeeper_clients: Vec<ZooKeeperClient>,
    wires: BTreeMap<WireId, Wire>,
    next_wire: u64,
    /// Calls without a session that are on their way.
    raws: BTreeMap<u64, Raw>,
    next_raw: u64,
    /// Callers without a session that were told that they hold something.
    raw_holders: BTreeMap<Token, RawHolder>,
    /// Sessions whose owners send no heartbeat by themselves.
    silent_sessions: Vec<RawSession>,
    checks: Checks,
    trace: Trace,
    faults: Tally,
    operations: u64,
    /// Changes of membership that the operator wants, in order.
    changes: Vec<Change>,
    next_node: u64,
    /// Until then no application asks for anything new.
    idle_until_us: u64,
    /// Until then nothing else goes wrong.
    undisturbed_until_us: u64,
    /// A node that is to crash right after its vote made a leader.
    doomed_voter: Option<NodeId>,
    violation: Option<Violation>,
}

/// Runs a seed to its end. A node that panics is a violation like any other.
pub(crate) fn run(plan: Plan) -> RunReport {
    let ran = std::panic::catch_unwind(|| run_to_the_end(plan));
    ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        RunReport {
            violation: Some(format!("a node panicked: {}", text.unwrap_or_default())),
            trace: Trace::default(),
            faults: Tally::default(),
            operations: 0,
            simulated_us: 0,
        }
    })
}

fn run_to_the_end(plan: Plan) -> RunReport {
    let mut world = World::new(plan);
    world.run_until(TROUBLE_US);
    world.calm();
    world.run_until(TROUBLE_US + CALM_US);
    world.judge_the_end();
    RunReport {
        violation: world.violation,
        trace: world.trace,
        faults: world.faults,
        operations: world.operations,
        simulated_us: world.now_us,
    }
}

impl World {
    fn new(plan: Plan) -> Self {
        let mut rng = Rng::new(plan.seed);
        let members = if rng.per_mille(100) {
            1
        } else if rng.per_mille(250) {
            5
        } else {
            3
        };
        let ids: Vec<NodeId> = (1..=members).map(NodeId).collect();
        // Some clusters are upgraded during the run, node by node.
        let level = if rng.per_mille(200) { LEVEL - rng.range(1, 3) as u16 } else { LEVEL };
        let cluster = Cluster::begin_at(level, ids.iter().map(|id| (*id, format!("node-{id}"))));
        let hosts = ids.iter().map(|id| (*id, Host::new(*id, Some(&cluster), &mut rng))).collect();
        let clients = (0..CLIENTS).map(|number| Client::new(number, 0, &mut rng, &ids)).collect();
        let zookeeper_clients = (0..ZOOKEEPER_CLIENTS)
            .map(|number| ZooKeeperClient::new(number, 0, 0, &mut rng, &ids))
            .collect();
        let mut world = Self {
            now_us: 0,
            queue: BTreeMap::new(),
            next_event: 0,
            rng,
            hosts,
            network: Network::new(),
            held: Vec::new(),
            clients,
            zookeeper_clients,
            wires: BTreeMap::new(),
            next_wire: 0,
            raws: BTreeMap::new(),
            next_raw: 0,
            raw_holders: BTreeMap::new(),
            silent_sessions: Vec::new(),
            checks: Checks::default(),
            trace: Trace::new(plan.wordy),
            faults: Tally::default(),
            operations: 0,
            changes: Vec::new(),
            next_node: members + 1,
            idle_until_us: 0,
            undisturbed_until_us: 0,
            doomed_voter: None,
            violation: None,
        };
        for id in ids {
            world.start(id);
        }
        for client in 0..CLIENTS {
            world.wake_client(client);
        }
        for client in 0..ZOOKEEPER_CLIENTS {
            world.wake_zookeeper_client(client);
        }
        world.schedule(5_000_000, Event::Trouble);
        world.schedule(1_000_000, Event::Operate);
        world.schedule(50_000, Event::Quiet);
        world.schedule(100_000, Event::Raw);
        world
    }

    fn schedule(&mut self, in_us: u64, event: Event) {
        self.schedule_keyed(in_us, event);
    }

    /// The same; the key is for taking it back.
    fn schedule_keyed(&mut self, in_us: u64, event: Event) -> (u64, u64) {
        self.next_event += 1;
        let key = (self.now_us + in_us, self.next_event);
        self.queue.insert(key, Box::new(event));
        key
    }

    fn run_until(&mut self, end_us: u64) {
        while self.violation.is_none()
            && let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= end_us)
        {
            let ((at_us, number), event) = entry.remove_entry();
            self.now_us = at_us;
            self.trace.mix(at_us ^ number.rotate_left(32));
            self.happen(*event);
        }
        if self.violation.is_none() {
            self.now_us = end_us;
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Turn(id, epoch) => self.turn(id, epoch),
            Event::Deliver { from, to, bytes } => self.deliver(from, to, &bytes),
            Event::DiskDone(id, epoch) => self.disk_done(id, epoch),
            Event::DiskRetry(id, epoch) => self.disk_retry(id, epoch),
            Event::HasRoom(id) => self.make_room(id),
            Event::SnapshotDone(id, epoch) => {
                if let Some(host) = self.hosts.get_mut(&id).filter(|host| host.epoch == epoch) {
                    host.write_snapshot();
                    self.wake(id);
                    self.stop_if_broken(id);
                }
            }
            Event::ParcelArrives { from, to, parcel } => self.parcel_arrives(from, to, *parcel),
            Event::Client(client) => self.client_turn(client),
            Event::ZooKeeperClient(client) => self.zookeeper_client_turn(client),
            Event::PumpZooKeeper(id, client) => self.pump_zookeeper_later(id, client),
            Event::Up(wire) => self.arrive_up(wire),
            Event::Down(wire) => self.arrive_down(wire),
            Event::WatchAgain { client, life, watch } => self.watch(client, life, watch),
            Event::Raw => self.raw(),
            Event::RawAgain(kind) => self.raw_again(*kind),
            Event::Heartbeat(session) => self.raw_heartbeat(*session),
            Event::Force(name) => self.force(name),
            Event::HangUp(number) => self.raw_hangs_up(number),
            Event::Trouble => self.trouble(),
            Event::Restart(id) => self.start(id),
            Event::Heal => self.heal(),
            Event::LetGo => self.let_go(),
            Event::LetClientsGo => self.let_clients_go(),
            Event::CutOff(id) => self.cut_off(id),
            Event::PowerFails => self.power_fails(),
            Event::PauseClient(client) => self.pause_client(client),
            Event::ReadAt(id) => {
                self.raw_call_at(id, RawKind::Read, RawCall::Read);
            }
            Event::PairAt(id) => self.ask_in_pairs(Some(id)),
            Event::OpenByHand(left) => self.open_by_hand(left),
            Event::HeartbeatAt(id) => self.heartbeat_at(id),
            Event::LoseConnections(id) => drop(self.lose_connections(id)),
            Event::Abandon { client, life, call } => self.abandon(client, life, call),
            Event::AskAtDoor(id) => self.ask_at_door(Some(id)),
            Event::DoorReleases(token) => self.door_releases(token),
            Event::HungUp { from, to } => self.peer_hung_up(from, to),
            Event::Operate => self.operate(),
            Event::Quiet => {
                self.hosts.values_mut().for_each(Host::vouch);
                for id in self.up() {
                    self.stop_if_broken(id);
                }
                self.schedule(50_000, Event::Quiet);
            }
        }
    }

    fn fail(&mut self, violation: Violation) {
        self.trace.say(self.now_us, || format!("VIOLATION {violation}"));
        self.violation.get_or_insert(violation);
    }

    fn up(&self) -> Vec<NodeId> {
        self.hosts.values().filter(|host| host.is_up()).map(|host| host.id).collect()
    }

    fn leader(&self) -> Option<NodeId> {
        let leads = |host: &&Host| host.node.as_ref().is_some_and(|node| node.is_leader());
        let newest = |host: &&Host| host.node.as_ref().map(|node| node.term());
        self.hosts.values().filter(leads).max_by_key(newest).map(|host| host.id)
    }

    /// Once faults have stopped, everybody gets on.
    fn judge_the_end(&mut self) {
        if self.violation.is_some() {
            return;
        }
        let beliefs = self.beliefs();
        let judged = liveness::judge(
            &self.hosts,
            &self.clients,
            &self.zookeeper_clients,
            &mut self.checks,
            &beliefs,
            self.now_us,
        );
        if let Err(violation) = judged {
            for host in self.hosts.values() {
                self.trace.say(self.now_us, || host.standing());
            }
            self.fail(violation);
        }
    }
}
