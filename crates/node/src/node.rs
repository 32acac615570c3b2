//! The loop of a node: inputs in, outputs out, one turn at a time.

use crate::cluster::Cluster;
use crate::consensus::{self, Consensus, DurableState, ELECTION_MS, LostEntries, Ready, TICK_MS};
use crate::heartbeats::Heartbeats;
use crate::io::{
    Boot, Busy, Config, Input, Loaded, Moment, Output, Persist, Reply, RequestTag, SnapshotTask,
};
use crate::lead::Leading;
use crate::message::{Body, PeerMessage};
use crate::proposals::{ProposalQueue, QueuedRequest};
use crate::read_index::{ReadIndex, Waiter};
use crate::types::{NodeId, RaftMessage, Voters};
use holdfast_core::{Command, RequestRef, SessionRef, State};
use holdfast_storage::Position;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most time that one turn of the loop may count. Time that a paused process did not observe
/// does not count, for deadlines or for silence.
const TURN_MS_MAX: u64 = 500;

/// Requests queued at one node; beyond it the reply is "busy".
const REQUESTS_MAX: usize = 65_536;

/// Reads and heartbeats that may wait for a confirmation.
pub(crate) const ROUND_WAITERS_MAX: usize = 65_536;

/// One node. The crate's documentation follows a request through it.
pub struct Node {
    pub(crate) id: NodeId,
    pub(crate) birth: u64,
    pub(crate) consensus: Consensus,
    pub(crate) state: State,
    pub(crate) cluster: Cluster,
    pub(crate) applied: Position,
    /// How much time this process has seen pass.
    pub(crate) seen_ms: u64,
    pub(crate) wall_ms: u64,
    last_mono_ms: Option<u64>,
    raft_debt_ms: u64,
    pub(crate) leading: Option<Leading>,
    pub(crate) proposals: ProposalQueue,
    pub(crate) heartbeats: Heartbeats,
    pub(crate) read_index: ReadIndex,
    unpersisted: VecDeque<Unpersisted>,
    /// A received snapshot that Raft has yet to accept.
    incoming: Option<Box<Loaded>>,
    disk_full: bool,
    snapshot_every_bytes: usize,
    /// The highest behaviour level that this program supports.
    pub(crate) level: u16,
    bytes_since_snapshot: usize,
    snapshot_running: Option<(Position, Voters)>,
    snapshot_wanted: bool,
    pub(crate) changing: Option<(RequestTag, Position)>,
    /// When each member was last heard from.
    pub(crate) last_message_ms: BTreeMap<NodeId, u64>,
    /// What was withdrawn in this turn.
    withdrawn: BTreeSet<RequestTag>,
    /// What this node computed at the last agreed indexes.
    pub(crate) digests: BTreeMap<u64, u64>,
    pub(crate) stopped: bool,
}

struct Unpersisted {
    number: u64,
    needs_disk: bool,
    since_ms: u64,
    messages: Vec<RaftMessage>,
}

impl Node {
    /// Creates a node from what was found on disk, or a new one.
    pub fn new(config: Config, boot: Boot) -> Result<Self, String> {
        let Boot { loaded, hard_state, entries } = boot;
        let Loaded { at, mut state, cluster } = loaded;
        if cluster.level > config.level {
            return Err(too_old(cluster.level, config.level));
        }
        state.set_level(cluster.level);
        let voters = voters_of(&cluster);
        let stored = DurableState { snapshot: at, voters, hard_state, entries };
        let consensus = Consensus::new(config.id, stored, config.rng_key)?;
        Ok(Self {
            id: config.id,
            birth: config.birth,
            consensus,
            state,
            cluster,
            applied: at,
            seen_ms: 0,
            wall_ms: 0,
            last_mono_ms: None,
            raft_debt_ms: 0,
            leading: None,
            proposals: ProposalQueue::new(config.id, config.secret),
            heartbeats: Heartbeats::new(config.nonce),
            read_index: ReadIndex::new(config.id, config.nonce),
            unpersisted: VecDeque::new(),
            incoming: None,
            disk_full: false,
            snapshot_every_bytes: config.snapshot_every_bytes,
            level: config.level,
            bytes_since_snapshot: 0,
            snapshot_running: None,
            snapshot_wanted: false,
            changing: None,
            last_message_ms: BTreeMap::new(),
            withdrawn: BTreeSet::new(),
            digests: BTreeMap::new(),
            stopped: false,
        })
    }

    /// Runs one turn of the loop: takes what has happened, and adds what must be done to `out`.
    pub fn turn(
        &mut self,
        now: Moment,
        inputs: impl IntoIterator<Item = Input>,
        out: &mut Vec<Output>,
    ) {
        if self.stopped {
            return;
        }
        self.pass_time(now);
        for input in inputs {
            self.take(input, out);
            if self.stopped {
                return;
            }
        }
        self.withdraw(out);
        // Applying may make more possible: a new session for what is queued, a new leader for what
        // was gathered. Each pass does everything it can, so a few are enough.
        for _ in 0..4 {
            self.follow_role();
            self.step_down_if_stuck();
            self.send_proposals(out);
            self.lead();
            self.send_heartbeats(out);
            self.run_rounds(out);
            if !self.drain(out) || self.stopped {
                break;
            }
        }
        self.take_snapshot_if_due(out);
    }

    /// How long until the next turn is needed even if nothing happens.
    pub fn next_turn_in_ms(&self) -> u64 {
        let tick = TICK_MS.saturating_sub(self.raft_debt_ms);
        let gather = if self.gathers() { 1 } else { tick };
        tick.min(gather).min(self.due_in_ms().unwrap_or(tick))
    }

    /// The state as of the last entry applied here, which may be stale.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Takes the state out of a node that is no longer needed.
    pub(crate) fn into_state(self) -> State {
        self.state
    }

    /// A consistent copy of everything as of the last entry applied here. It costs next to nothing
    /// until it is encoded.
    pub fn copy(&self) -> SnapshotTask {
        let (at, cluster) = (self.applied, self.cluster.clone());
        SnapshotTask { at, cluster, snapshot: self.state.snapshot() }
    }

    /// The replicated membership, as of the last entry applied here.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// This node's member id.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// The leader, as far as this node knows.
    pub fn leader(&self) -> Option<NodeId> {
        self.consensus.leader()
    }

    /// The session under which this node proposes, and which owns the waits of clients without one.
    pub fn own_session(&self) -> Option<SessionRef> {
        self.proposals.session
    }

    /// Whether this node leads, as far as it knows.
    pub fn is_leader(&self) -> bool {
        self.consensus.is_leader()
    }

    /// Whether this node's disk is full: it can write nothing, and falls behind.
    pub fn disk_is_full(&self) -> bool {
        self.disk_full
    }

    /// The current term.
    pub fn term(&self) -> u64 {
        self.consensus.term()
    }

    /// The last log entry applied on this node.
    pub fn applied(&self) -> Position {
        self.applied
    }

    /// Like [`Node::applied`], if that entry is durable here, so that this node's log will never
    /// end before it again. `None` while an installed snapshot is on its way to the disk.
    pub fn applied_durably(&self) -> Option<Position> {
        (self.applied.index <= self.consensus.persisted_index()).then_some(self.applied)
    }

    /// The last index that this node knows a majority to have.
    pub fn committed(&self) -> u64 {
        self.consensus.committed()
    }

    /// The digest of everything applied here: equal on all nodes at the same position.
    pub fn digest(&self) -> u64 {
        self.cluster.digest
    }

    /// The last index that each member is known to have; only meaningful at the leader.
    pub fn progress(&self) -> Vec<(NodeId, u64)> {
        self.consensus.progress()
    }

    fn pass_time(&mut self, now: Moment) {
        let elapsed = now.mono_ms.saturating_sub(self.last_mono_ms.unwrap_or(now.mono_ms));
        let elapsed = elapsed.min(TURN_MS_MAX);
        self.last_mono_ms = Some(now.mono_ms);
        self.wall_ms = now.wall_ms;
        self.seen_ms += elapsed;
        self.raft_debt_ms += elapsed;
        while self.raft_debt_ms >= TICK_MS {
            self.raft_debt_ms -= TICK_MS;
            self.consensus.tick();
        }
    }

    fn take(&mut self, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Peer { from, message } => self.receive_message(from, message, out),
            Input::Persisted(number) => self.persisted(number, out),
            Input::DiskFull(full) => self.disk_full = full,
            Input::SnapshotWritten(at) => self.snapshot_written(at, out),
            Input::SnapshotNotWritten => self.snapshot_running = None,
            Input::SnapshotReceived { message, loaded } => self.receive(message, loaded, out),
            Input::SnapshotSent { to, arrived } => self.consensus.snapshot_sent(to, arrived),
            Input::Unreachable(id) => self.consensus.unreachable(id),
            Input::HungUp(id) => {
                self.last_message_ms.remove(&id);
                self.consensus.hung_up(id);
            }
            Input::Submit { ask, request, command } => self.ask(ask, request, command, out),
            Input::Beat { ask, session } => self.beat(ask, session, out),
            Input::Read(ask) => {
                if self.read_index.len() >= ROUND_WAITERS_MAX {
                    out.push(Output::Reply { ask, reply: Reply::Busy(Busy::QueueFull) });
                } else {
                    self.read_index.add(Waiter::Read(ask));
                }
            }
            Input::Withdraw(ask) => {
                self.withdrawn.insert(ask);
            }
            Input::Change { ask, change, force } => self.change(ask, change, force, out),
            Input::Transfer(to) => self.consensus.transfer(to),
            Input::Campaign => self.consensus.campaign(),
            Input::TakeSnapshot => self.snapshot_wanted = true,
        }
    }

    fn ask(
        &mut self,
        ask: RequestTag,
        request: Option<RequestRef>,
        command: Command,
        out: &mut Vec<Output>,
    ) {
        let asked = QueuedRequest::new(ask, request, command);
        let busy = if asked.is_too_large() {
            Busy::TooLarge
        } else if self.disk_full {
            Busy::DiskFull
        } else if self.proposals.len() >= REQUESTS_MAX {
            Busy::QueueFull
        } else if !self.cluster.all_know(&asked.command) {
            Busy::OlderMember
        } else {
            self.proposals.add(asked);
            return;
        };
        out.push(Output::Reply { ask, reply: Reply::Busy(busy) });
    }

    /// Drops everything that nobody waits for any more, in one pass over each queue.
    fn withdraw(&mut self, out: &mut Vec<Output>) {
        if self.withdrawn.is_empty() {
            return;
        }
        let asks = std::mem::take(&mut self.withdrawn);
        let mut withdrawn = self.proposals.withdraw(&asks);
        withdrawn.extend(self.read_index.withdraw(&asks));
        withdrawn.extend(self.heartbeats.withdraw(&asks));
        for ask in withdrawn {
            // Both replies mean that it had no effect. A node that can't write what it receives
            // makes no progress, however well the others do.
            let reply = if self.disk_full { Reply::Busy(Busy::DiskFull) } else { Reply::Withdrawn };
            out.push(Output::Reply { ask, reply });
        }
    }

    /// Offers a received snapshot to Raft, and keeps it only if Raft accepts it. What was loaded
    /// may be newer than what the message offers: an earlier one that was ignored when it arrived.
    fn receive(&mut self, message: RaftMessage, loaded: Box<Loaded>, out: &mut Vec<Output>) {
        let before = self.consensus.pending_snapshot();
        let snapshot = message.snapshot.is_some().then(|| (loaded.at, voters_of(&loaded.cluster)));
        self.step(RaftMessage { snapshot, ..message }, out);
        let taken = self.consensus.pending_snapshot();
        if taken != before && taken == Some(loaded.at) {
            self.incoming = Some(loaded);
        }
    }

    fn receive_message(&mut self, from: NodeId, message: PeerMessage, out: &mut Vec<Output>) {
        if self.cluster.members.contains_key(&from) {
            self.last_message_ms.insert(from, self.seen_ms);
        }
        match message.0 {
            Body::Raft(message) => {
                // A snapshot arrives with its pieces, through `SnapshotReceived`.
                let honest = message.from == from.0 && consensus::may_come_from_a_peer(&message);
                if honest && !consensus::offers_snapshot(&message) {
                    self.step(message, out);
                }
            }
            Body::Forward(items) => self.gather(items),
            Body::ForwardIn { term, items } => self.gather_in(term, items),
            Body::Heartbeats { round, sessions } => self.receive_heartbeats(from, round, sessions),
            Body::HeartbeatsConfirmed { round, alive, gone } => {
                self.heartbeats_confirmed(round, &alive, &gone, out);
            }
        }
    }

    fn step(&mut self, message: RaftMessage, out: &mut Vec<Output>) {
        if let Err(LostEntries(why)) = self.consensus.step(message) {
            self.stopped = true;
            out.push(Output::Lost(why));
        }
    }

    fn persisted(&mut self, number: u64, out: &mut Vec<Output>) {
        let mut last = None;
        let on_disk = |front: &Unpersisted| front.number <= number || !front.needs_disk;
        while let Some(done) = self.unpersisted.pop_front_if(|front| on_disk(front)) {
            last = Some(done.number);
            self.send_all(done.messages, out);
        }
        if let Some(last) = last {
            self.consensus.persisted(last);
            self.consensus.applied(self.applied.index);
        }
    }

    /// A leader whose disk hangs must not lead: nothing it appends would become durable here.
    fn step_down_if_stuck(&mut self) {
        let oldest = self.unpersisted.iter().find(|waiting| waiting.needs_disk);
        let stuck =
            oldest.is_some_and(|oldest| self.seen_ms.saturating_sub(oldest.since_ms) > ELECTION_MS);
        let others_vote = voters_of(&self.cluster).voters.len() > 1;
        if stuck && self.consensus.is_leader() && others_vote {
            self.consensus.step_down();
        }
    }

    fn run_rounds(&mut self, out: &mut Vec<Output>) {
        if self.consensus.leader().is_some()
            && let Some(context) = self.read_index.begin(self.seen_ms)
        {
            self.consensus.read_index(context);
        }
        self.finish_rounds(out);
    }

    pub(crate) fn finish_rounds(&mut self, out: &mut Vec<Output>) {
        for waiter in self.read_index.done(self.applied.index) {
            match waiter {
                Waiter::Read(ask) => out.push(Output::Reply { ask, reply: Reply::Current }),
                Waiter::Heartbeats { from, round, sessions } => {
                    self.confirm_heartbeats(from, round, &sessions, out);
                }
            }
        }
    }

    /// Does everything that Raft is ready for; returns false if there was nothing.
    fn drain(&mut self, out: &mut Vec<Output>) -> bool {
        let mut any = false;
        while let Some(ready) = self.consensus.ready() {
            any = true;
            self.handle(ready, out);
            if self.stopped {
                break;
            }
        }
        any
    }

    fn handle(&mut self, ready: Ready, out: &mut Vec<Output>) {
        let Ready { number, hard_state, entries, installed, messages, .. } = ready;
        let (messages_after_disk, committed, reads) =
            (ready.messages_after_disk, ready.committed, ready.reads);
        self.send_all(messages, out);
        if let Some((at, _)) = &installed {
            self.install(*at, out);
        }
        let needs_disk = installed.is_some() || !entries.is_empty() || hard_state.is_some();
        if needs_disk {
            let installed = installed.map(|(at, _)| at);
            out.push(Output::Persist(Persist { number, installed, entries, hard_state }));
        }
        let since_ms = self.seen_ms;
        let waiting = Unpersisted { number, needs_disk, since_ms, messages: messages_after_disk };
        self.unpersisted.push_back(waiting);
        if self.unpersisted.iter().all(|waiting| !waiting.needs_disk) {
            self.persisted(number, out);
        }
        for (context, index) in reads {
            self.read_index.confirm(&context, index);
        }
        for entry in committed {
            self.bytes_since_snapshot += entry.data.len();
            self.apply_entry(entry, out);
            if self.stopped {
                return;
            }
        }
        self.consensus.applied(self.applied.index);
    }

    fn send_all(&mut self, messages: Vec<RaftMessage>, out: &mut Vec<Output>) {
        for message in messages {
            let to = NodeId(message.to);
            if consensus::offers_snapshot(&message) {
                out.push(Output::OfferSnapshot { to, message });
            } else {
                out.push(Output::Send { to, message: PeerMessage(Body::Raft(message)) });
            }
        }
    }

    /// Jumps to a snapshot that a leader sent.
    fn install(&mut self, at: Position, out: &mut Vec<Output>) {
        let Some(loaded) = self.incoming.take().filter(|loaded| loaded.at == at) else {
            self.stop(format!("Raft took a snapshot at {} that is not here", at.index), out);
            return;
        };
        if loaded.cluster.level > self.level {
            self.stop(too_old(loaded.cluster.level, self.level), out);
            return;
        }
        (self.state, self.cluster, self.applied) = (loaded.state, loaded.cluster, loaded.at);
        self.state.set_level(self.cluster.level);
        self.bytes_since_snapshot = 0;
        self.digests.clear();
        for ask in self.proposals.lose_track() {
            out.push(Output::Reply { ask, reply: Reply::Unknown });
        }
        out.push(Output::LostTrack);
    }

    fn take_snapshot_if_due(&mut self, out: &mut Vec<Output>) {
        let due = self.bytes_since_snapshot >= self.snapshot_every_bytes
            || self.consensus.wants_snapshot()
            || self.snapshot_wanted;
        if !due || self.snapshot_running.is_some() || self.stopped || self.applied.index == 0 {
            return;
        }
        self.snapshot_wanted = false;
        self.bytes_since_snapshot = 0;
        self.snapshot_running = Some((self.applied, voters_of(&self.cluster)));
        out.push(Output::WriteSnapshot(Box::new(self.copy())));
    }

    fn snapshot_written(&mut self, at: Position, out: &mut Vec<Output>) {
        if let Some((_, voters)) = self.snapshot_running.take_if(|(running, _)| *running == at) {
            self.consensus.compact(at, &voters);
            out.push(Output::Compact(at));
        }
    }

    pub(crate) fn stop(&mut self, why: String, out: &mut Vec<Output>) {
        self.stopped = true;
        out.push(Output::Stop(why));
    }
}

pub(crate) fn voters_of(cluster: &Cluster) -> Voters {
    let ids = |votes: bool| {
        let members = cluster.members.iter().filter(move |(_, member)| member.votes == votes);
        members.map(|(id, _)| id.0).collect()
    };
    Voters { voters: ids(true), learners: ids(false) }
}

/// Why a program that supports levels up to `supported` can't run in a cluster at a later one.
pub(crate) fn too_old(level: u16, supported: u16) -> String {
    format!(
        "the cluster runs at level {level}, this program supports up to {supported}: upgrade this \
         node"
    )
}
