//! A whole cluster and its clients in one thread: virtual time, one queue of events, one seed.

use crate::checks::{Applied, Belief, Checks, Violation};
use crate::client::{Act, Client, Sent};
use crate::faults::{Fault, Tally};
use crate::host::{Asker, Host, Parcel};
use crate::network::{Network, Weather};
use crate::rng::Rng;
use crate::trace::Trace;
use holdfast_core::{Effect, SessionId};
use holdfast_node::{Change, Cluster, Input, NodeId, NotChanged, Output, PeerMessage, Reply};
use std::collections::BTreeMap;

/// Clients in a run.
const CLIENTS: usize = 14;
/// How long faults happen, and how long they are over.
const TROUBLE_US: u64 = 300_000_000;
const CALM_US: u64 = 60_000_000;
/// Members at most.
const MEMBERS_MAX: usize = 5;

/// How a run is made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Keep words of what happens.
    pub(crate) wordy: bool,
    pub(crate) bug: Option<crate::bugs::Bug>,
}

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) violation: Option<Violation>,
    pub(crate) trace: Trace,
    pub(crate) faults: Tally,
    pub(crate) operations: u64,
    pub(crate) simulated_us: u64,
}

enum Event {
    Turn(NodeId, u64),
    Deliver { from: NodeId, to: NodeId, bytes: Vec<u8> },
    DiskDone(NodeId, u64),
    SnapshotDone(NodeId, u64),
    ParcelArrives { from: NodeId, to: NodeId, parcel: Box<Parcel> },
    Client(usize),
    ToNode { client: usize, attempt: u64, floor: u64, node: NodeId, sent: Sent, sent_us: u64 },
    ToClient { client: usize, what: ToClient },
    Trouble,
    Restart(NodeId),
    Heal,
    Operate,
    Quiet,
}

enum ToClient {
    Reply { attempt: u64, reply: Reply },
    Beat { session: holdfast_core::SessionRef, sent_us: u64, alive: bool },
    Nudge,
}

pub(crate) struct World {
    now_us: u64,
    /// Boxed, because the map moves its content about.
    queue: BTreeMap<(u64, u64), Box<Event>>,
    next_event: u64,
    rng: Rng,
    hosts: BTreeMap<NodeId, Host>,
    network: Network,
    clients: Vec<Client>,
    /// Whose session it is.
    sessions: BTreeMap<SessionId, usize>,
    checks: Checks,
    trace: Trace,
    faults: Tally,
    operations: u64,
    plan: Plan,
    /// Changes of membership that the operator wants, in order.
    changes: Vec<Change>,
    next_node: u64,
    violation: Option<Violation>,
}

/// Runs a seed to its end. A node that panics is a violation like any other.
pub(crate) fn run(plan: Plan) -> Outcome {
    let ran = std::panic::catch_unwind(|| run_to_the_end(plan));
    ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Outcome {
            violation: Some(format!("a node panicked: {}", text.unwrap_or_default())),
            trace: Trace::default(),
            faults: Tally::default(),
            operations: 0,
            simulated_us: 0,
        }
    })
}

fn run_to_the_end(plan: Plan) -> Outcome {
    let mut world = World::new(plan);
    world.run_until(TROUBLE_US);
    world.calm();
    world.run_until(TROUBLE_US + CALM_US);
    world.judge_the_end();
    Outcome {
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
        let cluster = Cluster::begin(ids.iter().map(|id| (*id, format!("node-{id}"))));
        let hosts = ids.iter().map(|id| (*id, Host::new(*id, Some(&cluster), &mut rng))).collect();
        let clients = (0..CLIENTS).map(|number| Client::new(number, &mut rng, &ids)).collect();
        let mut world = Self {
            now_us: 0,
            queue: BTreeMap::new(),
            next_event: 0,
            rng,
            hosts,
            network: Network::new(),
            clients,
            sessions: BTreeMap::new(),
            checks: Checks::default(),
            trace: Trace::new(plan.wordy),
            faults: Tally::default(),
            operations: 0,
            plan,
            changes: Vec::new(),
            next_node: members + 1,
            violation: None,
        };
        for id in ids {
            world.start(id);
        }
        for client in 0..CLIENTS {
            world.wake_client(client);
        }
        world.schedule(5_000_000, Event::Trouble);
        world.schedule(1_000_000, Event::Operate);
        world.schedule(50_000, Event::Quiet);
        world
    }

    fn schedule(&mut self, in_us: u64, event: Event) {
        self.next_event += 1;
        self.queue.insert((self.now_us + in_us, self.next_event), Box::new(event));
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
            Event::SnapshotDone(id, epoch) => {
                if let Some(host) = self.hosts.get_mut(&id).filter(|host| host.epoch == epoch) {
                    host.write_snapshot();
                    self.wake(id);
                }
            }
            Event::ParcelArrives { from, to, parcel } => self.parcel_arrives(from, to, *parcel),
            Event::Client(client) => self.client_wakes(client),
            Event::ToNode { client, attempt, floor, node, sent, sent_us } => {
                self.node_hears(client, attempt, floor, node, sent, sent_us);
            }
            Event::ToClient { client, what } => {
                self.client_hears(client, what);
                self.wake_client(client);
            }
            Event::Trouble => self.trouble(),
            Event::Restart(id) => self.start(id),
            Event::Heal => self.heal(),
            Event::Operate => self.operate(),
            Event::Quiet => {
                for host in self.hosts.values_mut() {
                    host.vouch();
                }
                self.schedule(50_000, Event::Quiet);
            }
        }
    }

    fn fail(&mut self, violation: Violation) {
        self.trace.say(self.now_us, || format!("VIOLATION {violation}"));
        self.violation.get_or_insert(violation);
    }

    fn start(&mut self, id: NodeId) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        if host.is_up() || host.damaged || host.removed {
            return;
        }
        match host.start(&mut self.rng) {
            Ok(()) => {
                self.plan.plant(host);
                self.trace.say(self.now_us, || format!("node {id} starts"));
                self.wake(id);
            }
            Err(fault) => {
                self.trace.say(self.now_us, || format!("node {id} does not start: {fault}"));
                self.replace(id);
            }
        }
    }

    /// A node that can't be trusted comes back as a new member.
    fn replace(&mut self, id: NodeId) {
        let new = self.new_host();
        self.changes.push(Change::AddLearner { node: new, address: format!("node-{new}") });
        self.changes.push(Change::Promote(new));
        self.changes.push(Change::Remove(id));
        self.start(new);
    }

    fn new_host(&mut self) -> NodeId {
        let id = NodeId(self.next_node);
        self.next_node += 1;
        self.hosts.insert(id, Host::new(id, None, &mut self.rng));
        id
    }

    /// Gives a node a turn soon.
    fn wake(&mut self, id: NodeId) {
        let in_us = self.rng.range(10, 120);
        self.wake_in(id, in_us);
    }

    fn wake_in(&mut self, id: NodeId, in_us: u64) {
        let Some(host) = self.hosts.get_mut(&id).filter(|host| host.is_up()) else { return };
        let at_us = (self.now_us + in_us).max(host.paused_until_us);
        if host.turn_at_us.is_some_and(|turn_at_us| turn_at_us <= at_us) {
            return;
        }
        host.turn_at_us = Some(at_us);
        let epoch = host.epoch;
        self.schedule(at_us - self.now_us, Event::Turn(id, epoch));
    }

    fn turn(&mut self, id: NodeId, epoch: u64) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        if host.epoch != epoch || host.turn_at_us != Some(self.now_us) {
            return;
        }
        host.turn_at_us = None;
        if self.now_us < host.paused_until_us {
            return self.wake_in(id, 0);
        }
        let outputs = host.turn(self.now_us);
        for output in outputs {
            self.output(id, output);
        }
        let next = self.hosts.get(&id).and_then(|host| host.node.as_ref());
        if let Some(next_ms) = next.map(|node| node.next_turn_in_ms()) {
            self.wake_in(id, next_ms.max(1) * 1_000);
        }
    }

    fn output(&mut self, id: NodeId, output: Output) {
        match output {
            Output::Send { to, message } => self.send(id, to, &message),
            Output::Persist(persist) => {
                let number = persist.number;
                let idle = self.hosts.get_mut(&id).is_some_and(|host| host.persist(persist));
                if self.plan.replies_before_fsync() {
                    if let Some(host) = self.hosts.get_mut(&id) {
                        host.inputs.push(Input::Persisted(number));
                    }
                    self.wake(id);
                }
                if idle {
                    self.begin_persist(id);
                }
            }
            Output::WriteSnapshot(task) => {
                let in_us = self.rng.range(5_000, 200_000);
                let Some(host) = self.hosts.get_mut(&id) else { return };
                host.snapshot = Some(task);
                let epoch = host.epoch;
                self.schedule(in_us, Event::SnapshotDone(id, epoch));
            }
            Output::OfferSnapshot { to, message } => {
                let parcel = self.hosts.get(&id).and_then(|host| host.parcel(message));
                let arrives = parcel.filter(|_| self.network.reaches(id, to));
                match arrives {
                    Some(parcel) => {
                        let in_us = self.rng.range(2_000, 300_000);
                        let parcel = Box::new(parcel);
                        self.schedule(in_us, Event::ParcelArrives { from: id, to, parcel });
                    }
                    None => self.parcel_result(id, to, false),
                }
            }
            Output::Compact(at) => {
                if let Some(host) = self.hosts.get_mut(&id) {
                    host.compact(at);
                }
            }
            Output::Reply { ask, reply } => self.reply(id, ask, reply),
            Output::Applied { at, effects, digest } => self.applied(id, at, &effects, digest),
            Output::LostTrack => {
                self.trace.say(self.now_us, || format!("node {id} jumped by snapshot"))
            }
            Output::Stop(why) => self.stopped(id, &why),
        }
    }

    fn stopped(&mut self, id: NodeId, why: &str) {
        self.trace.say(self.now_us, || format!("node {id} stops: {why}"));
        let Some(host) = self.hosts.get_mut(&id) else { return };
        if why.contains("removed") {
            host.removed = true;
            host.crash(false, &mut self.rng);
        } else {
            self.fail(format!("replicas agree: node {id} stopped: {why}"));
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: &PeerMessage) {
        for in_us in self.network.arrivals_us(&mut self.rng, from, to) {
            self.schedule(in_us, Event::Deliver { from, to, bytes: message.encode(Vec::new()) });
        }
    }

    fn deliver(&mut self, from: NodeId, to: NodeId, bytes: &[u8]) {
        // A partition that came meanwhile swallows what is on its way.
        if !self.network.reaches(from, to) {
            return;
        }
        let Some(message) = PeerMessage::decode(bytes) else {
            return self.fail("a message can't be read".to_owned());
        };
        if let Some(host) = self.hosts.get_mut(&to).filter(|host| host.is_up()) {
            host.inputs.push(Input::Peer { from, message });
            self.wake(to);
        }
    }

    fn begin_persist(&mut self, id: NodeId) {
        let slow = self.hosts.get(&id).is_some_and(|host| self.now_us < host.slow_until_us);
        let in_us = if slow { self.rng.range(50_000, 1_500_000) } else { self.rng.range(80, 600) };
        let Some(host) = self.hosts.get_mut(&id) else { return };
        match host.begin_persist() {
            Ok(Some(_)) => {
                let epoch = host.epoch;
                self.schedule(in_us, Event::DiskDone(id, epoch));
            }
            Ok(None) => {}
            Err(error) => self.fail(format!("node {id} can't write: {error}")),
        }
    }

    fn disk_done(&mut self, id: NodeId, epoch: u64) {
        let Some(host) = self.hosts.get_mut(&id).filter(|host| host.epoch == epoch) else { return };
        match host.end_persist() {
            Ok(Some(number)) => host.inputs.push(Input::Persisted(number)),
            Ok(None) => {}
            Err(fault) => return self.fail(format!("node {id} can't sync: {fault}")),
        }
        self.wake(id);
        self.begin_persist(id);
    }

    fn parcel_arrives(&mut self, from: NodeId, to: NodeId, parcel: Parcel) {
        let reaches = self.network.reaches(from, to);
        let host = self.hosts.get_mut(&to).filter(|_| reaches);
        let arrived = host.is_some_and(|host| host.receive(parcel, &mut self.rng));
        self.wake(to);
        self.parcel_result(from, to, arrived);
    }

    fn parcel_result(&mut self, from: NodeId, to: NodeId, arrived: bool) {
        if let Some(host) = self.hosts.get_mut(&from).filter(|host| host.is_up()) {
            host.inputs.push(Input::SnapshotSent { to, arrived });
            self.wake(from);
        }
    }

    fn applied(
        &mut self,
        id: NodeId,
        at: holdfast_node::Position,
        effects: &[Effect],
        digest: u64,
    ) {
        self.trace.mix(at.index ^ digest);
        let beliefs = self.beliefs();
        let Some(node) = self.hosts.get(&id).and_then(|host| host.node.as_ref()) else { return };
        let state = node.state();
        let applied = Applied { node: id, at, digest, effects, state, now_us: self.now_us };
        let checked = self.checks.applied(&applied, &beliefs);
        let sound = if at.index.is_multiple_of(64) { state.check() } else { Ok(()) };
        for effect in effects {
            self.trace
                .say(self.now_us, || format!("node {id} entry {}: {}", at.index, words(effect)));
            if let Effect::Granted(grant) = effect
                && let Some(client) = grant.session.and_then(|session| self.sessions.get(&session))
                && self.clients.get(*client).is_some_and(|client| client.home == id)
            {
                let (client, in_us) = (*client, self.network.delay_us(&mut self.rng));
                self.schedule(in_us, Event::ToClient { client, what: ToClient::Nudge });
            }
        }
        if let Err(violation) = checked.and(sound) {
            self.fail(violation);
        }
    }

    /// Who believes now to hold what.
    fn beliefs(&self) -> Vec<Belief> {
        let belief = |client: &Client| {
            let name = client.hold.as_ref()?.wish.name.clone();
            let (token, mode) = client.believes(self.now_us, &name)?;
            Some(Belief { client: client.number, name, token, mode })
        };
        self.clients.iter().filter_map(belief).collect()
    }

    fn reply(&mut self, id: NodeId, ask: holdfast_node::Ask, reply: Reply) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        let Some(asker) = host.asker(ask) else { return };
        let counter = host.node.as_ref().map_or(0, |node| node.state().counts().counter);
        match asker {
            Asker::Operator(change) => self.changed(&change, &reply),
            Asker::Beat { client, session, sent_us } => {
                let Reply::Beat(alive) = reply else { return };
                let what = ToClient::Beat { session, sent_us, alive };
                self.answer(client, what);
            }
            Asker::Pair { client, pair, second } => {
                if let Err(violation) = self.checks.pair(client, pair, second, &reply) {
                    self.fail(violation);
                }
            }
            Asker::Client { client, attempt, floor } => {
                if reply == Reply::Current
                    && let Err(violation) = self.checks.read(id, counter, floor)
                {
                    return self.fail(violation);
                }
                self.answer(client, ToClient::Reply { attempt, reply });
            }
        }
    }

    fn answer(&mut self, client: usize, what: ToClient) {
        if self.rng.per_mille(self.network.weather.lost_per_mille) {
            return;
        }
        let in_us = self.network.delay_us(&mut self.rng);
        self.schedule(in_us, Event::ToClient { client, what });
    }

    fn client_wakes(&mut self, number: usize) {
        let nodes: Vec<NodeId> =
            self.hosts.values().filter(|host| host.is_up()).map(|host| host.id).collect();
        let floor = self.checks.floor();
        let Some(client) = self.clients.get_mut(number) else { return };
        if client.wake_at_us != Some(self.now_us) {
            return;
        }
        let acts = client.wake(self.now_us, &mut self.rng, &nodes, floor);
        self.act(number, acts);
        self.wake_client(number);
    }

    /// Lets a client look again when something is due for it.
    fn wake_client(&mut self, number: usize) {
        let Some(client) = self.clients.get_mut(number) else { return };
        let at_us = client.next_wake_us().max(self.now_us + 1);
        if client
            .wake_at_us
            .is_some_and(|wake_at_us| wake_at_us <= at_us && wake_at_us > self.now_us)
        {
            return;
        }
        client.wake_at_us = Some(at_us);
        self.schedule(at_us - self.now_us, Event::Client(number));
    }

    fn act(&mut self, number: usize, acts: Vec<Act>) {
        for act in acts {
            let Some(client) = self.clients.get(number) else { return };
            let (attempt, floor) = (client.attempt, client.floor);
            match act {
                Act::Finished => self.operations += 1,
                Act::Drew(token) => {
                    if let Err(violation) = self.checks.drew(number, token, floor) {
                        return self.fail(violation);
                    }
                }
                Act::Send(node, sent) => {
                    if self.rng.per_mille(self.network.weather.lost_per_mille) {
                        continue;
                    }
                    let in_us = self.network.delay_us(&mut self.rng);
                    let sent_us = self.now_us;
                    self.schedule(
                        in_us,
                        Event::ToNode { client: number, attempt, floor, node, sent, sent_us },
                    );
                }
            }
        }
    }

    fn node_hears(
        &mut self,
        client: usize,
        attempt: u64,
        floor: u64,
        node: NodeId,
        sent: Sent,
        sent_us: u64,
    ) {
        let Some(host) = self.hosts.get_mut(&node).filter(|host| host.is_up()) else { return };
        let asker = match &sent {
            Sent::Beat(session) => Asker::Beat { client, session: *session, sent_us },
            Sent::Ask { .. } | Sent::Read => Asker::Client { client, attempt, floor },
            Sent::Pair { pair, first, second } => {
                let pair = *pair;
                for (command, second) in [(first, false), (second, true)] {
                    let sent = Sent::Ask { request: None, command: (**command).clone() };
                    host.ask(Asker::Pair { client, pair, second }, sent);
                }
                return self.wake(node);
            }
        };
        host.ask(asker, sent);
        self.wake(node);
    }

    fn client_hears(&mut self, number: usize, what: ToClient) {
        let now_us = self.now_us;
        let Some(client) = self.clients.get_mut(number) else { return };
        // A paused client reads its mail when it wakes.
        if now_us < client.paused_until_us {
            let in_us = client.paused_until_us - now_us + 1;
            return self.schedule(in_us, Event::ToClient { client: number, what });
        }
        match what {
            ToClient::Nudge => client.nudge(),
            ToClient::Beat { session, sent_us, alive } => {
                client.beat_answered(now_us, session, alive);
                if alive {
                    let ttl_ms = client.ttl_ms();
                    self.checks.beat(session.id, sent_us, ttl_ms);
                }
            }
            ToClient::Reply { attempt, reply } => {
                // An answer to an earlier send of the same request is as good.
                if attempt < client.first_attempt() {
                    return;
                }
                let acts = client.answered(now_us, reply, &mut self.rng);
                if let Some(session) = client.session {
                    self.sessions.insert(session.id, number);
                }
                self.act(number, acts);
            }
        }
    }

    fn up(&self) -> Vec<NodeId> {
        self.hosts.values().filter(|host| host.is_up()).map(|host| host.id).collect()
    }

    fn leader(&self) -> Option<NodeId> {
        let leads = |host: &&Host| host.node.as_ref().is_some_and(|node| node.is_leader());
        let newest = |host: &&Host| host.node.as_ref().map(|node| node.term());
        self.hosts.values().filter(leads).max_by_key(newest).map(|host| host.id)
    }

    fn trouble(&mut self) {
        let fault = Fault::draw(&mut self.rng);
        let victim = match self.rng.per_mille(400).then(|| self.leader()).flatten() {
            Some(leader) => Some(leader),
            None => {
                let up = self.up();
                self.rng.pick(&up).copied()
            }
        };
        if let Some(victim) = victim
            && self.cause(fault, victim)
        {
            self.faults.count(fault);
            self.trace.say(self.now_us, || format!("FAULT {} at node {victim}", fault.name()));
        }
        let in_us = self.rng.range(200_000, 6_000_000);
        self.schedule(in_us, Event::Trouble);
    }

    /// Makes trouble; false if there is none to be made now.
    fn cause(&mut self, fault: Fault, victim: NodeId) -> bool {
        let all: Vec<NodeId> = self.hosts.keys().copied().collect();
        let until_us = self.now_us + self.rng.range(500_000, 8_000_000);
        let lasting = until_us - self.now_us;
        match fault {
            Fault::Crash | Fault::PowerCut => {
                if let Some(host) = self.hosts.get_mut(&victim) {
                    host.crash(fault == Fault::PowerCut, &mut self.rng);
                }
                // Some come back within the same election.
                let quick = self.rng.per_mille(400);
                let in_us = if quick { self.rng.range(5_000, 400_000) } else { lasting };
                self.schedule(in_us, Event::Restart(victim));
            }
            Fault::Blackout => {
                for id in self.up() {
                    if let Some(host) = self.hosts.get_mut(&id) {
                        host.crash(true, &mut self.rng);
                    }
                    let in_us = self.rng.range(5_000, 2_000_000);
                    self.schedule(in_us, Event::Restart(id));
                }
            }
            Fault::PartitionFull | Fault::PartitionOneWay => {
                self.network.cut_off(&[victim], &all, fault == Fault::PartitionOneWay);
                self.schedule(lasting, Event::Heal);
            }
            Fault::PartitionBridge => {
                self.network.bridge(victim, &all);
                self.schedule(lasting, Event::Heal);
            }
            Fault::Storm => {
                self.network.weather = Weather {
                    lost_per_mille: self.rng.range(0, 200),
                    doubled_per_mille: self.rng.range(0, 200),
                    late_per_mille: self.rng.range(0, 300),
                    late_ms_max: self.rng.range(1, 2_000),
                };
                self.schedule(lasting, Event::Heal);
            }
            Fault::SlowDisk => {
                if let Some(host) = self.hosts.get_mut(&victim) {
                    host.slow_until_us = until_us;
                }
            }
            Fault::PauseNode => {
                if let Some(host) = self.hosts.get_mut(&victim) {
                    host.paused_until_us = until_us;
                }
            }
            Fault::PauseClient => {
                let number = self.rng.range(0, CLIENTS as u64) as usize;
                if let Some(client) = self.clients.get_mut(number) {
                    client.paused_until_us = until_us;
                }
            }
            Fault::BitFlip => return self.flip_a_bit(victim),
            Fault::TransferLeader => {
                let Some(leader) = self.leader() else { return false };
                if let Some(host) = self.hosts.get_mut(&leader) {
                    host.inputs.push(Input::Transfer(victim));
                    self.wake(leader);
                }
            }
            Fault::AddMember => {
                if self.members() >= MEMBERS_MAX || !self.changes.is_empty() {
                    return false;
                }
                let new = self.new_host();
                self.changes.push(Change::AddLearner { node: new, address: format!("node-{new}") });
                self.changes.push(Change::Promote(new));
                self.start(new);
            }
            Fault::RemoveMember => {
                if self.members() <= 3 || !self.changes.is_empty() {
                    return false;
                }
                self.changes.push(Change::Remove(victim));
            }
            Fault::Snapshot => {
                if let Some(host) = self.hosts.get_mut(&victim).filter(|host| host.is_up()) {
                    host.inputs.push(Input::TakeSnapshot);
                    self.wake(victim);
                }
            }
        }
        true
    }

    fn members(&self) -> usize {
        self.hosts.values().filter(|host| !host.removed && !host.damaged).count()
    }

    /// Flips a bit at rest in a record that the log vouches for; the node must notice.
    fn flip_a_bit(&mut self, victim: NodeId) -> bool {
        // A majority must stay whole, or nothing could be promised.
        let healthy = self.hosts.values().filter(|host| host.is_up()).count();
        if healthy < 4 || !self.changes.is_empty() {
            return false;
        }
        let Some(host) = self.hosts.get_mut(&victim) else { return false };
        host.crash(false, &mut self.rng);
        let flipped = crate::flip::flip(&host.disk, &mut self.rng);
        self.schedule(1_000_000, Event::Restart(victim));
        flipped
    }

    fn heal(&mut self) {
        self.network.heal();
        self.network.weather = Weather::FINE;
    }

    /// The operator changes the membership, one step at a time.
    fn operate(&mut self) {
        if let Some(change) = self.changes.first().cloned()
            && let Some(leader) = self.leader()
            && let Some(host) = self.hosts.get_mut(&leader)
        {
            host.change(change);
            self.wake(leader);
        }
        self.schedule(700_000, Event::Operate);
    }

    fn changed(&mut self, change: &Change, reply: &Reply) {
        let Reply::Changed(result) = reply else { return };
        let done = matches!(result, Ok(()) | Err(NotChanged::Refused(_)));
        if done && self.changes.first() == Some(change) {
            self.changes.remove(0);
            self.trace.say(self.now_us, || format!("operator: {change:?} {result:?}"));
        }
        if let (Change::Remove(id), Ok(())) = (change, result)
            && let Some(host) = self.hosts.get_mut(id)
        {
            host.removed = true;
            host.crash(false, &mut self.rng);
        }
    }

    /// Faults are over: everybody comes back.
    fn calm(&mut self) {
        self.heal();
        self.queue.retain(|_, event| !matches!(**event, Event::Trouble));
        let ids: Vec<NodeId> = self.hosts.keys().copied().collect();
        for id in ids {
            if let Some(host) = self.hosts.get_mut(&id) {
                (host.paused_until_us, host.slow_until_us) = (0, 0);
            }
            self.start(id);
            self.wake(id);
        }
        for client in &mut self.clients {
            client.paused_until_us = 0;
            client.done = 0;
        }
        for client in 0..CLIENTS {
            self.wake_client(client);
        }
    }

    /// Liveness: once faults have stopped, everybody gets on and all replicas are equal.
    fn judge_the_end(&mut self) {
        if self.violation.is_some() {
            return;
        }
        if self.leader().is_none() {
            return self
                .fail("liveness: a minute after the last fault there is no leader".to_owned());
        }
        let stuck = self.clients.iter().find(|client| client.done == 0);
        if let Some(stuck) = stuck {
            let (number, doing) = (stuck.number, format!("{:?}", stuck.doing));
            return self
                .fail(format!("liveness: client {number} got nowhere in a minute: {doing}"));
        }
        let last = self.checks.last_applied();
        let behind = self.hosts.values().filter_map(|host| host.node.as_ref()).find(|node| {
            node.cluster().members().contains_key(&node.id()) && node.applied().index + 50 < last
        });
        if let Some(node) = behind {
            let (id, at) = (node.id(), node.applied().index);
            return self
                .fail(format!("liveness: node {id} is at entry {at}, the others at {last}"));
        }
        let unsound = self
            .hosts
            .values()
            .filter_map(|host| host.node.as_ref())
            .find_map(|node| node.state().check().err());
        if let Some(unsound) = unsound {
            self.fail(unsound);
        }
    }
}

fn words(effect: &Effect) -> String {
    match effect {
        Effect::Granted(grant) => {
            format!("granted {:?} token {}", grant.names.as_slice(), grant.token)
        }
        Effect::Ended(ended) => {
            format!("ended {:?} token {} ({})", ended.names.as_slice(), ended.token, ended.how)
        }
        Effect::SessionEnded { session, how } => format!("session {session} {how}"),
        other => format!("{other:?}"),
    }
}
