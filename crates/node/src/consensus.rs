//! The Raft library behind one narrow interface, so that it can be replaced.
//!
//! Its quirks: it draws election timeouts from its own random source, so ours are set after every
//! step and tick; otherwise no simulation would be repeatable. Followers would forward proposals
//! themselves, so nothing is proposed unless this node leads. Read-index requests are silently
//! dropped until a leader has committed in its own term, so the caller repeats them. A message is
//! persisted before it is sent, except a leader's.

use crate::types::{NodeId, RaftMessage, Voters};
use holdfast_storage::{EntryKind, HardState, LogEntry, Position};
use raft::eraftpb::{
    self, ConfChangeSingle, ConfChangeType, ConfChangeV2, ConfState, EntryType, MessageType,
};
use raft::{
    GetEntriesContext, RaftState, RawNode, ReadOnlyOption, SnapshotStatus, StateRole, Storage,
    StorageError,
};
use std::cell::Cell;
use std::collections::VecDeque;

/// Raft's own tick.
pub(crate) const TICK_MS: u64 = 50;
/// A leader sends a heartbeat every 100ms.
const HEARTBEAT_TICKS: usize = 2;
/// A leader that has been silent for 500ms to 1s is replaced: longer than a slow fsync, short
/// enough that the cluster is without a leader for only about half a second.
const ELECTION_TICKS: usize = 10;
/// A leader whose process has ended is replaced after at most this many ticks. The number varies,
/// so that usually one node runs for election first.
const HUNG_UP_TICKS_MAX: usize = 4;
/// How long a leader's own disk may hang before it must step down.
pub(crate) const ELECTION_MS: u64 = TICK_MS * ELECTION_TICKS as u64;
/// Bytes of entries in one message.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;
/// Appends in flight to one follower.
const APPENDS_IN_FLIGHT_MAX: usize = 64;
/// Bytes applied in one turn of the loop.
const APPLIED_BYTES_MAX: u64 = 4 << 20;

/// Entries kept in memory from before a snapshot, for followers that lag a little.
const ENTRIES_KEPT_BEHIND: usize = 512;

/// What must be done before the next step.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    pub(crate) number: u64,
    pub(crate) hard_state: Option<HardState>,
    pub(crate) entries: Vec<LogEntry>,
    pub(crate) installed: Option<(Position, Voters)>,
    pub(crate) messages: Vec<RaftMessage>,
    /// To be sent only once `number` is on disk.
    pub(crate) messages_after_disk: Vec<RaftMessage>,
    pub(crate) committed: Vec<LogEntry>,
    /// Confirmed reads: the request's context, and the index to apply first.
    pub(crate) reads: Vec<(Vec<u8>, u64)>,
}

/// What a node had on disk when it was last stopped.
#[derive(Debug, Clone, Default)]
pub(crate) struct DurableState {
    pub(crate) snapshot: Position,
    pub(crate) voters: Voters,
    pub(crate) hard_state: HardState,
    pub(crate) entries: Vec<LogEntry>,
}

impl DurableState {
    /// Refuses an inconsistent log, at which the library would panic.
    fn check(&self, id: NodeId) -> Result<(), String> {
        let last = self.snapshot.index.saturating_add(self.entries.len() as u64);
        let expected = self.snapshot.index.saturating_add(1)..;
        if self.entries.iter().zip(expected).any(|(entry, index)| entry.at.index != index) {
            return Err(format!("the log has a gap behind entry {}", self.snapshot.index));
        }
        if self.hard_state.commit > last {
            let commit = self.hard_state.commit;
            return Err(format!("the log ends at entry {last}, but {commit} was committed"));
        }
        if id.0 == 0 || !self.voters.are_sound() {
            return Err("the membership is invalid".to_owned());
        }
        Ok(())
    }
}

impl Voters {
    /// Whether the library accepts them: no duplicates, and no zero id.
    fn are_sound(&self) -> bool {
        let mut ids: Vec<u64> = self.voters.iter().chain(&self.learners).copied().collect();
        ids.sort_unstable();
        let once = ids.windows(2).all(|pair| pair.first() != pair.last());
        once && ids.first() != Some(&0) && (!self.voters.is_empty() || self.learners.is_empty())
    }
}

/// A peer's message proves that this node, or the cluster, has lost something it acknowledged. If
/// it voted now, it might vote away an acknowledged entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostEntries(pub(crate) String);

pub(crate) struct Consensus {
    raw: RawNode<Entries>,
    rng: u64,
    /// The commit index has risen since the last write. It can be recovered, so it does not cause a
    /// write of its own but goes with the next one.
    commit_unwritten: bool,
}

impl Consensus {
    pub(crate) fn new(id: NodeId, stored: DurableState, rng_key: u64) -> Result<Self, String> {
        stored.check(id)?;
        let applied = stored.snapshot.index;
        let config = raft::Config {
            id: id.0,
            election_tick: ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            applied,
            max_size_per_msg: MESSAGE_BYTES_MAX,
            max_inflight_msgs: APPENDS_IN_FLIGHT_MAX,
            check_quorum: true,
            pre_vote: true,
            read_only_option: ReadOnlyOption::Safe,
            max_committed_size_per_ready: APPLIED_BYTES_MAX,
            ..raft::Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config, Entries::of(stored), &logger).map_err(|e| e.to_string())?;
        let mut consensus = Self { raw, rng: rng_key, commit_unwritten: false };
        consensus.draw_timeout();
        Ok(consensus)
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    pub(crate) fn leader(&self) -> Option<NodeId> {
        (self.raw.raft.leader_id != 0).then_some(NodeId(self.raw.raft.leader_id))
    }

    pub(crate) fn term(&self) -> u64 {
        self.raw.raft.term
    }

    pub(crate) fn committed(&self) -> u64 {
        self.raw.raft.raft_log.committed
    }

    pub(crate) fn last_index(&self) -> u64 {
        self.raw.raft.raft_log.last_index()
    }

    /// The last index that is on this node's own disk.
    pub(crate) fn persisted_index(&self) -> u64 {
        self.raw.raft.raft_log.persisted
    }

    /// The last index that each member is known to have; only meaningful at the leader.
    pub(crate) fn progress(&self) -> Vec<(NodeId, u64)> {
        self.raw.raft.prs().iter().map(|(id, progress)| (NodeId(*id), progress.matched)).collect()
    }

    /// Draws the next election timeout from our own source.
    fn draw_timeout(&mut self) {
        // A linear congruential step is enough: timeouts only have to differ between nodes.
        self.rng = self
            .rng
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let spread = (self.rng >> 33) as usize % ELECTION_TICKS;
        self.raw.raft.set_randomized_election_timeout(ELECTION_TICKS + spread);
    }

    fn keep_timeout(&mut self, before: (u64, StateRole)) {
        // The library draws a new timeout whenever its role or term changes.
        if before != (self.raw.raft.term, self.raw.raft.state) {
            self.draw_timeout();
        }
    }

    fn role(&self) -> (u64, StateRole) {
        (self.raw.raft.term, self.raw.raft.state)
    }

    /// A node whose disk is behind does not run for election: the only voter of a cluster would win
    /// immediately, with entries that are not durable.
    pub(crate) fn tick(&mut self) {
        if !self.is_leader() && self.persisted_index() < self.last_index() {
            return;
        }
        let before = self.role();
        self.raw.tick();
        self.keep_timeout(before);
    }

    /// The snapshot that the library has accepted and that is not on disk yet.
    pub(crate) fn pending_snapshot(&self) -> Option<Position> {
        let metadata = self.raw.raft.snap()?.get_metadata();
        Some(Position { index: metadata.index, term: metadata.term })
    }

    /// Handles a peer's message. What the library would panic at is filtered out first: a message
    /// that makes no sense is treated as lost; one that proves a loss is an error.
    pub(crate) fn step(&mut self, message: RaftMessage) -> Result<(), LostEntries> {
        if !self.makes_sense(&message) {
            return Ok(());
        }
        self.check_loss(&message)?;
        let before = self.role();
        // A message that the library rejects (stale or foreign) is treated as lost, too.
        let _ = self.raw.step(to_message(message));
        self.keep_timeout(before);
        Ok(())
    }

    fn makes_sense(&self, message: &RaftMessage) -> bool {
        let Some(kind) = message_type(message.kind) else { return false };
        // The library takes messages without a term for local ones. Only a read has none.
        if (kind == MessageType::MsgReadIndex) != (message.term == 0) {
            return false;
        }
        match kind {
            // The library assumes term 0 for any entry that it does not have.
            MessageType::MsgAppend => {
                let expected = message.index.saturating_add(1)..;
                let follows =
                    |(entry, index): (&LogEntry, u64)| entry.at.index == index && entry.at.term > 0;
                (message.index == 0) == (message.log_term == 0)
                    && message.entries.iter().zip(expected).all(follows)
            }
            MessageType::MsgReadIndex => message.entries.len() == 1,
            MessageType::MsgSnapshot => message.snapshot.as_ref().is_some_and(|(at, voters)| {
                at.index > 0 && at.term > 0 && !voters.voters.is_empty() && voters.are_sound()
            }),
            // A follower would forward it, and the library only forwards messages without a term.
            MessageType::MsgTransferLeader => self.is_leader(),
            // As in `tick`: a node must have its log on disk to be elected.
            MessageType::MsgTimeoutNow => self.persisted_index() >= self.last_index(),
            _ => true,
        }
    }

    /// Detects losses. This relies on a leader having every committed entry, and counting only what
    /// a follower has acknowledged.
    fn check_loss(&self, message: &RaftMessage) -> Result<(), LostEntries> {
        let term = self.raw.raft.term;
        let (from, last) = (message.from, self.last_index());
        let follows = message.term > term || (message.term == term && !self.is_leader());
        let leads = message.term == term && self.is_leader();
        match message_type(message.kind) {
            Some(MessageType::MsgHeartbeat) if follows && message.commit > last => {
                Err(LostEntries(format!(
                    "this node acknowledged entry {} to node {from}, and its log ends at entry {last}: \
                     its disk has lost what was written, or its folder is an old copy",
                    message.commit
                )))
            }
            Some(MessageType::MsgAppend) if follows => match self.committed_otherwise(message) {
                Some(index) => Err(LostEntries(format!(
                    "this node knows another entry {index} to be committed than node {from}, \
                         which leads: one of the two has lost what it acknowledged, or runs in an \
                         old copy of its folder"
                ))),
                None => Ok(()),
            },
            Some(MessageType::MsgAppendResponse | MessageType::MsgHeartbeatResponse)
                if leads && !message.reject && message.index.max(message.commit) > last =>
            {
                Err(LostEntries(format!(
                    "this node leads with a log that ends at entry {last}, and node {from} has entry \
                     {}: this node's disk has lost what was written, or its folder is an old copy",
                    message.index.max(message.commit)
                )))
            }
            _ => Ok(()),
        }
    }

    /// An entry of an append that this node knows to be committed with another term.
    fn committed_otherwise(&self, message: &RaftMessage) -> Option<u64> {
        let log = &self.raw.raft.raft_log;
        let before = Position { index: message.index, term: message.log_term };
        let entries = message.entries.iter().map(|entry| entry.at);
        // Compacted entries are no longer known.
        let known = self.raw.store().before.index.max(1)..=log.committed;
        let mut known =
            std::iter::once(before).chain(entries).filter(|at| known.contains(&at.index));
        let other = known.find(|at| log.term(at.index).is_ok_and(|term| term != at.term));
        other.map(|at| at.index)
    }

    /// Whether a batch would be appended now: not during a leadership transfer, and not by a leader
    /// that was removed.
    pub(crate) fn takes_batches(&self) -> bool {
        let raft = &self.raw.raft;
        self.is_leader() && raft.lead_transferee.is_none() && raft.prs().get(raft.id).is_some()
    }

    /// Appends a batch. Only a leader may; returns false if the library refuses it.
    pub(crate) fn propose(&mut self, data: Vec<u8>) -> bool {
        self.is_leader() && self.raw.propose(Vec::new(), data).is_ok()
    }

    /// Appends a membership change; `data` is what every node reads when it is applied. While an
    /// earlier change may be unapplied, the library would append an empty entry instead and report
    /// success.
    pub(crate) fn propose_change(&mut self, change: MemberStep, data: Vec<u8>) -> bool {
        self.is_leader()
            && !self.raw.raft.has_pending_conf()
            && self.raw.propose_conf_change(data, conf_change(change)).is_ok()
    }

    /// Takes an applied change into account; `None` if it was refused.
    pub(crate) fn apply_change(&mut self, change: Option<MemberStep>) {
        let change = change.map_or_else(ConfChangeV2::default, conf_change);
        let before = self.role();
        if let Ok(conf_state) = self.raw.apply_conf_change(&change) {
            self.raw.mut_store().conf_state = conf_state;
        }
        self.keep_timeout(before);
    }

    pub(crate) fn read_index(&mut self, context: Vec<u8>) {
        self.raw.read_index(context);
    }

    pub(crate) fn transfer(&mut self, to: NodeId) {
        self.raw.transfer_leader(to.0);
    }

    pub(crate) fn step_down(&mut self) {
        let before = self.role();
        let term = self.raw.raft.term;
        self.raw.raft.become_follower(term, raft::INVALID_ID);
        self.keep_timeout(before);
    }

    pub(crate) fn campaign(&mut self) {
        if self.persisted_index() < self.last_index() || !self.raw.raft.promotable() {
            return;
        }
        let before = self.role();
        let _ = self.raw.campaign();
        self.keep_timeout(before);
    }

    /// If the leader's connection was closed, looks for another leader soon. Nodes that still get
    /// the leader's heartbeats refuse to vote, so a mere broken connection costs no more than that.
    pub(crate) fn hung_up(&mut self, id: NodeId) {
        if self.leader() != Some(id) || self.is_leader() {
            return;
        }
        let term = self.raw.raft.term;
        self.raw.raft.become_follower(term, raft::INVALID_ID);
        self.draw_timeout();
        let soon = 1 + (self.rng >> 17) as usize % HUNG_UP_TICKS_MAX;
        let timeout = self.raw.raft.randomized_election_timeout();
        self.raw.raft.election_elapsed = timeout.saturating_sub(soon);
    }

    pub(crate) fn unreachable(&mut self, id: NodeId) {
        self.raw.report_unreachable(id.0);
    }

    pub(crate) fn snapshot_sent(&mut self, to: NodeId, arrived: bool) {
        let status = if arrived { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
        self.raw.report_snapshot(to.0, status);
    }

    /// What there is to do; `None` if nothing.
    pub(crate) fn ready(&mut self) -> Option<Ready> {
        if !self.raw.has_ready() {
            return None;
        }
        let mut raw = self.raw.ready();
        let mut ready = Ready { number: raw.number(), ..Ready::default() };
        if !raw.snapshot().is_empty() {
            let metadata = raw.snapshot().get_metadata().clone();
            let at = Position { index: metadata.index, term: metadata.term };
            ready.installed = Some((at, from_conf_state(metadata.get_conf_state())));
            self.raw.mut_store().install(at, metadata.get_conf_state().clone());
        }
        if !raw.entries().is_empty() {
            self.raw.mut_store().append(raw.entries());
            ready.entries = raw.take_entries().iter().map(from_entry).collect();
        }
        if let Some(hard_state) = raw.hs() {
            self.raw.mut_store().hard_state = hard_state.clone();
            self.commit_unwritten = true;
        }
        if raw.must_sync() && std::mem::take(&mut self.commit_unwritten) {
            ready.hard_state = Some(from_hard_state(&self.raw.store().hard_state));
        }
        ready.messages = raw.take_messages().into_iter().map(from_message).collect();
        ready.messages_after_disk =
            raw.take_persisted_messages().into_iter().map(from_message).collect();
        ready.committed = raw.take_committed_entries().iter().map(from_entry).collect();
        ready.reads =
            raw.take_read_states().into_iter().map(|r| (r.request_ctx, r.index)).collect();
        self.raw.advance_append_async(raw);
        Some(ready)
    }

    /// Everything up to this ready is on disk.
    pub(crate) fn persisted(&mut self, number: u64) {
        self.raw.on_persist_ready(number);
    }

    /// Reports how far the state has been applied. An installed snapshot counts only once it is on
    /// disk.
    pub(crate) fn applied(&mut self, index: u64) {
        let log = &self.raw.raft.raft_log;
        if index > log.applied && index <= log.committed.min(log.persisted) {
            self.raw.advance_apply_to(index);
        }
    }

    /// A snapshot at this position is on disk: entries well before it may be dropped.
    pub(crate) fn compact(&mut self, at: Position, voters: &Voters) {
        self.raw.mut_store().compact(at, to_conf_state(voters));
    }

    /// Whether a follower needs a newer snapshot than the last one.
    pub(crate) fn wants_snapshot(&self) -> bool {
        self.raw.store().snapshot_wanted.get()
    }
}

/// One membership step; larger changes consist of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberStep {
    AddLearner(NodeId),
    Promote(NodeId),
    Remove(NodeId),
}

fn conf_change(step: MemberStep) -> ConfChangeV2 {
    let (kind, id) = match step {
        MemberStep::AddLearner(id) => (ConfChangeType::AddLearnerNode, id),
        MemberStep::Promote(id) => (ConfChangeType::AddNode, id),
        MemberStep::Remove(id) => (ConfChangeType::RemoveNode, id),
    };
    let mut single = ConfChangeSingle::default();
    single.set_change_type(kind);
    single.node_id = id.0;
    let mut change = ConfChangeV2::default();
    change.set_changes(vec![single].into());
    change
}

/// The log as the library reads it: everything after the last snapshot, in memory. The driver
/// writes it to disk; the disk is read only at startup.
struct Entries {
    hard_state: eraftpb::HardState,
    conf_state: ConfState,
    /// The position before the first entry kept.
    before: Position,
    entries: VecDeque<eraftpb::Entry>,
    /// The last snapshot on disk.
    snapshot: Position,
    snapshot_conf: ConfState,
    snapshot_wanted: Cell<bool>,
}

impl Entries {
    fn of(stored: DurableState) -> Self {
        let conf_state = to_conf_state(&stored.voters);
        let mut hard_state = to_hard_state(stored.hard_state);
        hard_state.commit = hard_state.commit.max(stored.snapshot.index);
        hard_state.term = hard_state.term.max(stored.snapshot.term);
        Self {
            hard_state,
            conf_state: conf_state.clone(),
            before: stored.snapshot,
            entries: stored.entries.iter().map(to_entry).collect(),
            snapshot: stored.snapshot,
            snapshot_conf: conf_state,
            snapshot_wanted: Cell::new(false),
        }
    }

    fn last(&self) -> u64 {
        self.before.index + self.entries.len() as u64
    }

    fn append(&mut self, entries: &[eraftpb::Entry]) {
        let Some(first) = entries.first() else { return };
        let keep = first.index.saturating_sub(self.before.index + 1) as usize;
        self.entries.truncate(keep);
        self.entries.extend(entries.iter().cloned());
    }

    fn install(&mut self, at: Position, conf_state: ConfState) {
        self.entries.clear();
        (self.before, self.snapshot) = (at, at);
        self.snapshot_conf = conf_state.clone();
        self.conf_state = conf_state;
        self.snapshot_wanted.set(false);
    }

    fn compact(&mut self, at: Position, voters: ConfState) {
        if at.index > self.snapshot.index {
            self.snapshot = at;
            self.snapshot_conf = voters;
            self.snapshot_wanted.set(false);
        }
        let behind = at.index.saturating_sub(self.before.index) as usize;
        for _ in ENTRIES_KEPT_BEHIND..behind {
            if let Some(entry) = self.entries.pop_front() {
                self.before = Position { index: entry.index, term: entry.term };
            }
        }
    }

    fn at(&self, index: u64) -> Option<&eraftpb::Entry> {
        self.entries.get(usize::try_from(index.checked_sub(self.before.index + 1)?).ok()?)
    }
}

impl Storage for Entries {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), self.conf_state.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<eraftpb::Entry>> {
        if low <= self.before.index {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(raft::Error::Store(StorageError::Unavailable));
        }
        let max_size = max_size.into().unwrap_or(u64::MAX);
        let mut size = 0;
        let mut entries = Vec::new();
        for entry in (low..high).filter_map(|index| self.at(index)) {
            size += entry.data.len() as u64;
            if !entries.is_empty() && size > max_size {
                break;
            }
            entries.push(entry.clone());
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.before.index {
            return Ok(self.before.term);
        }
        if index < self.before.index {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        self.at(index).map(|entry| entry.term).ok_or(raft::Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.before.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<eraftpb::Snapshot> {
        // A member only accepts a snapshot that lists it as a member.
        let members = self.snapshot_conf.voters.iter().chain(&self.snapshot_conf.learners);
        let knows_it = members.copied().any(|member| member == to);
        if self.snapshot.index < request_index.max(self.before.index) || !knows_it {
            self.snapshot_wanted.set(true);
            return Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        Ok(to_snapshot(self.snapshot, self.snapshot_conf.clone()))
    }
}

fn to_snapshot(at: Position, conf_state: ConfState) -> eraftpb::Snapshot {
    let mut snapshot = eraftpb::Snapshot::default();
    let metadata = snapshot.mut_metadata();
    metadata.index = at.index;
    metadata.term = at.term;
    metadata.set_conf_state(conf_state);
    snapshot
}

fn to_conf_state(voters: &Voters) -> ConfState {
    ConfState::from((voters.voters.clone(), voters.learners.clone()))
}

fn from_conf_state(conf_state: &ConfState) -> Voters {
    Voters { voters: conf_state.voters.clone(), learners: conf_state.learners.clone() }
}

fn to_hard_state(hard_state: HardState) -> eraftpb::HardState {
    let mut to = eraftpb::HardState::default();
    (to.term, to.vote, to.commit) = (hard_state.term, hard_state.vote, hard_state.commit);
    to
}

fn from_hard_state(hard_state: &eraftpb::HardState) -> HardState {
    HardState { term: hard_state.term, vote: hard_state.vote, commit: hard_state.commit }
}

fn to_entry(entry: &LogEntry) -> eraftpb::Entry {
    let mut to = eraftpb::Entry::default();
    (to.index, to.term) = (entry.at.index, entry.at.term);
    match entry.kind {
        EntryKind::Batch => {
            to.set_entry_type(EntryType::EntryNormal);
            to.data = entry.data.clone().into();
        }
        EntryKind::Membership => {
            // The library only looks at the type; the change itself is read from the context.
            to.set_entry_type(EntryType::EntryConfChangeV2);
            to.context = entry.data.clone().into();
        }
    }
    to
}

fn from_entry(entry: &eraftpb::Entry) -> LogEntry {
    let at = Position { index: entry.index, term: entry.term };
    match entry.get_entry_type() {
        EntryType::EntryNormal => {
            LogEntry { at, kind: EntryKind::Batch, data: entry.data.to_vec() }
        }
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => {
            LogEntry { at, kind: EntryKind::Membership, data: entry.context.to_vec() }
        }
    }
}

fn to_message(message: RaftMessage) -> eraftpb::Message {
    let mut to = eraftpb::Message::default();
    if let Some(kind) = message_type(message.kind) {
        to.set_msg_type(kind);
    }
    (to.to, to.from, to.term) = (message.to, message.from, message.term);
    (to.log_term, to.index) = (message.log_term, message.index);
    (to.commit, to.commit_term) = (message.commit, message.commit_term);
    (to.request_snapshot, to.reject) = (message.request_snapshot, message.reject);
    (to.reject_hint, to.priority) = (message.reject_hint, message.priority);
    to.set_entries(message.entries.iter().map(to_entry).collect::<Vec<_>>().into());
    to.context = message.context.into();
    if let Some((at, voters)) = message.snapshot {
        to.set_snapshot(to_snapshot(at, to_conf_state(&voters)));
    }
    to
}

/// Messages that a peer may send; the library's local ones must not come from outside.
const FROM_PEERS: [MessageType; 14] = [
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgSnapshot,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgTransferLeader,
    MessageType::MsgTimeoutNow,
    MessageType::MsgReadIndex,
    MessageType::MsgReadIndexResp,
    MessageType::MsgRequestPreVote,
    MessageType::MsgRequestPreVoteResponse,
    MessageType::MsgUnreachable,
];

fn message_type(kind: i32) -> Option<MessageType> {
    FROM_PEERS
        .into_iter()
        .find(|known| *known as i32 == kind && *known != MessageType::MsgUnreachable)
}

/// Whether a peer may send a message of this kind.
pub(crate) fn may_come_from_a_peer(message: &RaftMessage) -> bool {
    message_type(message.kind).is_some()
}

/// Whether it offers a snapshot: those travel with their pieces.
pub(crate) fn offers_snapshot(message: &RaftMessage) -> bool {
    message.kind == MessageType::MsgSnapshot as i32
}

fn from_message(message: eraftpb::Message) -> RaftMessage {
    let offered = message.get_msg_type() == MessageType::MsgSnapshot;
    let metadata = message.get_snapshot().get_metadata();
    let at = Position { index: metadata.index, term: metadata.term };
    RaftMessage {
        kind: message.get_msg_type() as i32,
        to: message.to,
        from: message.from,
        term: message.term,
        log_term: message.log_term,
        index: message.index,
        entries: message.entries.iter().map(from_entry).collect(),
        commit: message.commit,
        commit_term: message.commit_term,
        snapshot: offered.then(|| (at, from_conf_state(metadata.get_conf_state()))),
        request_snapshot: message.request_snapshot,
        reject: message.reject,
        reject_hint: message.reject_hint,
        context: message.context.to_vec(),
        priority: message.priority,
    }
}

#[cfg(test)]
mod tests;
