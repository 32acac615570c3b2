//! Nodes driven by hand: every message arrives immediately, and disks have no latency.

#![allow(unreachable_pub, reason = "the tests beside it use it")]

use holdfast_core::{
    Acquire, Answer, Command, Door, Effect, Lease, Limits, LockName, Mode, OpenSession, Secret,
    SessionKind, SessionRef, State, TicketStatus, Wait,
};
use holdfast_node::{
    Boot, Cluster, Config, HardState, Input, LEVEL, Loaded, Moment, Node, NodeId, Output,
    PeerMessage, Position, RaftMessage, Reply, RequestTag, SnapshotTask,
};
use std::collections::{BTreeMap, BTreeSet};

pub const SECRET: Secret = Secret([7; 16]);

pub struct Cluster3 {
    pub nodes: BTreeMap<NodeId, Node>,
    pub inputs: BTreeMap<NodeId, Vec<Input>>,
    pub now_ms: u64,
    pub replies: BTreeMap<RequestTag, Reply>,
    pub effects: Vec<(NodeId, Effect)>,
    /// Nodes that neither send nor receive.
    pub cut: Vec<NodeId>,
    /// Links that hold back what is sent, each in one direction, as TCP does in a partition.
    pub holding: BTreeSet<(NodeId, NodeId)>,
    /// What they hold back: sender, receiver, message.
    pub held: Vec<(NodeId, NodeId, PeerMessage)>,
    pub next_ask: u64,
    /// A node whose disk accepts everything and finishes nothing, and the last number it was given.
    pub stalled: Option<(NodeId, u64)>,
    /// How often each disk was written to.
    pub writes: BTreeMap<NodeId, u64>,
    pub snapshots: BTreeMap<NodeId, Box<SnapshotTask>>,
    /// Holds back offered snapshots instead of delivering them: sender, receiver, message.
    pub keeps_parcels: bool,
    pub parcels: Vec<(NodeId, NodeId, RaftMessage)>,
    /// Nodes that may stop; any other that does fails the test.
    pub may_stop: BTreeSet<NodeId>,
    /// The ones that have stopped, and why.
    pub stopped: BTreeMap<NodeId, String>,
}

pub fn node(id: u64, cluster: Cluster, at: Position) -> Node {
    start(id, cluster, at, id)
}

/// A node with the given nonce.
pub fn start(id: u64, cluster: Cluster, at: Position, nonce: u64) -> Node {
    start_with(State::new(Limits::DEFAULT, id), id, cluster, at, nonce)
}

/// A node that starts with this state.
pub fn start_with(state: State, id: u64, cluster: Cluster, at: Position, nonce: u64) -> Node {
    let boot = Boot {
        loaded: Loaded { at, state, cluster },
        hard_state: HardState { term: at.term, vote: 0, commit: at.index },
        entries: Vec::new(),
    };
    let secret = Secret([id as u8; 16]);
    let (id, birth, rng_key) = (NodeId(id), id, id);
    let snapshot_every_bytes = 1 << 20;
    let config = Config { id, birth, rng_key, secret, nonce, snapshot_every_bytes, level: LEVEL };
    Node::new(config, boot).unwrap()
}

impl Cluster3 {
    pub fn new(count: u64) -> Self {
        let cluster = Cluster::begin((1..=count).map(|id| (NodeId(id), format!("node-{id}"))));
        let begin = Position { index: 1, term: 1 };
        let nodes = (1..=count).map(|id| (NodeId(id), node(id, cluster.clone(), begin))).collect();
        Self {
            nodes,
            inputs: BTreeMap::new(),
            now_ms: 0,
            replies: BTreeMap::new(),
            effects: Vec::new(),
            cut: Vec::new(),
            holding: BTreeSet::new(),
            held: Vec::new(),
            next_ask: 0,
            stalled: None,
            writes: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            keeps_parcels: false,
            parcels: Vec::new(),
            may_stop: BTreeSet::new(),
            stopped: BTreeMap::new(),
        }
    }

    pub fn input(&mut self, id: NodeId, input: Input) {
        self.inputs.entry(id).or_default().push(input);
    }

    /// Lets time pass in steps of 1ms, each with turns until no node has anything left to send.
    pub fn pass(&mut self, ms: u64) {
        self.pass_by(ms, 1);
    }

    /// Lets time pass in larger steps.
    pub fn pass_by(&mut self, ms: u64, step_ms: u64) {
        for _ in 0..ms / step_ms {
            self.now_ms += step_ms;
            for _ in 0..20 {
                let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
                for id in ids {
                    self.turn(id);
                }
                if self.inputs.values().all(Vec::is_empty) {
                    break;
                }
            }
        }
    }

    pub fn turn(&mut self, id: NodeId) {
        let inputs = self.inputs.remove(&id).unwrap_or_default();
        let moment = Moment { mono_ms: self.now_ms, wall_ms: 0 };
        let mut out = Vec::new();
        self.nodes.get_mut(&id).unwrap().turn(moment, inputs, &mut out);
        for output in out {
            match output {
                Output::Send { to, message } => {
                    if self.holding.contains(&(id, to)) {
                        self.held.push((id, to, message));
                    } else if !self.cut.contains(&id)
                        && !self.cut.contains(&to)
                        && self.nodes.contains_key(&to)
                    {
                        self.input(to, Input::Peer { from: id, message });
                    }
                }
                Output::Persist(persist) => {
                    *self.writes.entry(id).or_default() += 1;
                    match &mut self.stalled {
                        Some((stalled, number)) if *stalled == id => *number = persist.number,
                        _ => self.input(id, Input::Persisted(persist.number)),
                    }
                }
                Output::Reply { ask, reply } => {
                    self.replies.insert(ask, reply);
                }
                Output::Applied { effects, .. } => {
                    self.effects.extend(effects.into_iter().map(|effect| (id, effect)));
                }
                Output::WriteSnapshot(task) => {
                    self.input(id, Input::SnapshotWritten(task.at));
                    self.snapshots.insert(id, task);
                }
                Output::OfferSnapshot { to, message } if self.keeps_parcels => {
                    self.parcels.push((id, to, message));
                }
                Output::OfferSnapshot { to, message } => {
                    let loaded = self.load(id);
                    self.input(to, Input::SnapshotReceived { message, loaded });
                    self.input(id, Input::SnapshotSent { to, arrived: true });
                }
                Output::Compact(_) | Output::LostTrack => {}
                Output::Stop(why) | Output::Lost(why) => {
                    assert!(self.may_stop.contains(&id), "node {id} stopped: {why}");
                    self.stopped.insert(id, why);
                }
            }
        }
    }

    /// The last snapshot of a node, as another node loads it.
    pub fn load(&self, id: NodeId) -> Box<Loaded> {
        let SnapshotTask { at, cluster, snapshot } = &*self.snapshots[&id];
        let state = State::load(snapshot.pieces().map(Result::unwrap), Limits::DEFAULT, 9).unwrap();
        Box::new(Loaded { at: *at, state, cluster: cluster.clone() })
    }

    /// From now on these links hold back what is sent.
    pub fn hold(&mut self, links: impl IntoIterator<Item = (NodeId, NodeId)>) {
        self.holding.extend(links);
    }

    /// Delivers what was held back, in order; the links work again.
    pub fn let_go(&mut self) {
        self.holding.clear();
        for (from, to, message) in std::mem::take(&mut self.held) {
            self.input(to, Input::Peer { from, message });
        }
    }

    /// All other nodes.
    pub fn others(&self, than: NodeId) -> Vec<NodeId> {
        self.nodes.keys().copied().filter(|id| *id != than).collect()
    }

    pub fn leader(&self) -> Option<NodeId> {
        let leads = |(id, node): &(&NodeId, &Node)| node.is_leader() && !self.cut.contains(id);
        self.nodes.iter().find(leads).map(|(id, _)| *id)
    }

    pub fn until_leader(&mut self) -> NodeId {
        for _ in 0..10_000 {
            if let Some(leader) = self.leader() {
                return leader;
            }
            self.pass(1);
        }
        panic!("no leader within 10 s");
    }

    pub fn ask(&mut self, at: NodeId, command: Command) -> RequestTag {
        let ask = self.next_ask();
        self.input(at, Input::Submit { ask, request: None, command });
        ask
    }

    /// A handle for something other than a command.
    pub fn next_ask(&mut self) -> RequestTag {
        self.next_ask += 1;
        RequestTag(self.next_ask)
    }

    pub fn reply(&mut self, ask: RequestTag, within_ms: u64) -> Reply {
        for _ in 0..within_ms {
            if let Some(reply) = self.replies.remove(&ask) {
                return reply;
            }
            self.pass(1);
        }
        panic!("no reply to {ask:?} within {within_ms} ms");
    }

    pub fn open(&mut self, at: NodeId, ttl_ms: u64) -> SessionRef {
        let open = OpenSession { secret: SECRET, ttl_ms, label: None, kind: SessionKind::Client };
        let ask = self.ask(at, Command::OpenSession(open));
        match self.reply(ask, 20_000) {
            Reply::Answer(Ok(Answer::SessionOpened(id))) => SessionRef { id, secret: SECRET },
            other => panic!("{other:?}"),
        }
    }
}

pub fn acquire(name: &str, session: SessionRef, lease: Lease) -> Command {
    Command::Acquire(Acquire {
        names: vec![LockName::parse(name).unwrap()],
        mode: Mode::Exclusive,
        session: Some(session),
        lease,
        wait: Wait::Forever,
        label: None,
        note: None,
        secret: None,
        claims: Vec::new(),
        lock_delay_ms: 0,
        door: Door::Native,
    })
}

pub fn token(reply: &Reply) -> u64 {
    match reply {
        Reply::Answer(Ok(Answer::TicketStatus(TicketStatus::Held(grant)))) => grant.token.0,
        other => panic!("not held: {other:?}"),
    }
}
