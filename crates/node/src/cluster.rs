//! What is replicated besides the locks: the members, the behaviour level in force, and what each
//! node computed at agreed indexes.

use crate::types::NodeId;
use holdfast_core::Command;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The behaviour level of this program. Raised whenever the core would apply an old entry in a new
/// way, the digest of its results would differ, or an entry may contain something that older
/// versions can't read.
pub const LEVEL: u16 = 8;

/// From this level on, all members can read transactions.
const TRANSACTIONS_LEVEL: u16 = 2;

/// From this level on, all members can read changes to znodes.
const TREE_LEVEL: u16 = 6;

/// From this level on, all members can read what operators do.
const ACCESS_LEVEL: u16 = 8;

/// From this level on, all members support forwarded proposals that are meant for one term.
const FORWARD_IN_LEVEL: u16 = 3;

/// From this level on, all members support sessions of a certain node, and leases that wait for a
/// confirmation.
const CONFIRMED_LEVEL: u16 = 4;

/// Written first wherever the members are stored.
const VERSION: u8 = 1;

/// The nodes compare what they computed every this many entries.
pub(crate) const REPORT_EVERY: u64 = 1_024;

/// How many agreed indexes reports are kept for: a node that lags further compares at a later one.
const REPORTS_KEPT: usize = 8;

/// A member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its peer address, as of its joining.
    pub address: String,
    /// Whether it votes.
    pub votes: bool,
    /// The behaviour level that its program last reported.
    pub level: u16,
    /// Identifies its data folder; 0 until it has reported it.
    pub birth: u64,
}

/// What a node computed at an agreed index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) node: NodeId,
    pub(crate) index: u64,
    pub(crate) digest: u64,
}

/// A membership change, as stored in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Adds a member without a vote.
    AddLearner {
        /// Its id, never used before.
        node: NodeId,
        /// Its peer address.
        address: String,
    },
    /// Gives a learner its vote.
    Promote(NodeId),
    /// Removes a member; its id is never used again.
    Remove(NodeId),
}

/// The first behaviour level whose programs can read this command.
pub(crate) fn since(command: &Command) -> u16 {
    match command {
        Command::Transact(_) => TRANSACTIONS_LEVEL,
        Command::Tree(_) => TREE_LEVEL,
        Command::Operate { .. } => ACCESS_LEVEL,
        _ => 0,
    }
}

/// The replicated state besides the core's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    pub(crate) members: BTreeMap<NodeId, Member>,
    /// Ids that must not come back.
    pub(crate) removed: Vec<NodeId>,
    pub(crate) level: u16,
    pub(crate) reports: BTreeMap<u64, BTreeMap<NodeId, u64>>,
    /// The digest of everything applied so far.
    pub(crate) digest: u64,
}

impl Cluster {
    /// Whether all members can read what operators do.
    pub fn supports_access(&self) -> bool {
        self.level >= ACCESS_LEVEL
    }

    /// A new cluster with these voters.
    pub fn begin(voters: impl IntoIterator<Item = (NodeId, String)>) -> Self {
        Self::begin_at(LEVEL, voters)
    }

    /// A new cluster as a program of that behaviour level creates it.
    pub fn begin_at(level: u16, voters: impl IntoIterator<Item = (NodeId, String)>) -> Self {
        let member = |(id, address)| (id, Member { address, votes: true, level, birth: 0 });
        Self { members: voters.into_iter().map(member).collect(), level, ..Self::default() }
    }

    /// Encodes it for a snapshot.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        let members = postcard::to_extend(self, vec![VERSION]);
        members.map_err(|error| format!("the members can't be encoded: {error}"))
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        (*version == VERSION).then(|| postcard::from_bytes(rest).ok())?
    }

    /// The members by id.
    pub fn members(&self) -> &BTreeMap<NodeId, Member> {
        &self.members
    }

    /// An id that no member has or had.
    pub fn next_id(&self) -> NodeId {
        let used = self.members.keys().chain(&self.removed).map(|id| id.0).max();
        NodeId(used.unwrap_or(0) + 1)
    }

    /// The ids of removed members, which are never used again.
    pub fn removed(&self) -> &[NodeId] {
        &self.removed
    }

    /// The behaviour level in force.
    pub fn level(&self) -> u16 {
        self.level
    }

    /// Whether all members support this command: what one of them can't read must not enter the
    /// log.
    pub(crate) fn all_know(&self, command: &Command) -> bool {
        self.level >= since(command)
    }

    /// Whether all members support proposals that are forwarded for one term only.
    pub(crate) fn all_know_forward_in(&self) -> bool {
        self.level >= FORWARD_IN_LEVEL
    }

    /// Whether all members support sessions of a certain node, and leases that wait for a
    /// confirmation.
    pub(crate) fn all_know_unconfirmed(&self) -> bool {
        self.level >= CONFIRMED_LEVEL
    }

    /// The members that vote.
    pub(crate) fn voters(&self) -> impl Iterator<Item = NodeId> {
        self.members.iter().filter(|(_, member)| member.votes).map(|(id, _)| *id)
    }

    /// Checks that a change makes sense now; returns what is wrong with it otherwise.
    pub(crate) fn check(&self, change: &Change) -> Result<(), &'static str> {
        match change {
            Change::AddLearner { node, .. } if self.members.contains_key(node) => {
                Err("it is a member already")
            }
            Change::AddLearner { node, .. } if self.removed.contains(node) => {
                Err("its id was removed before: give it a new one")
            }
            Change::AddLearner { .. } => Ok(()),
            Change::Promote(node) | Change::Remove(node) if !self.members.contains_key(node) => {
                Err("it is not a member")
            }
            Change::Promote(node) if self.members.get(node).is_some_and(|member| member.votes) => {
                Err("it has its vote already")
            }
            Change::Promote(_) => Ok(()),
            Change::Remove(node) => {
                let others = self.members.iter().filter(|(id, member)| *id != node && member.votes);
                if others.count() == 0 { Err("the last voter can't be removed") } else { Ok(()) }
            }
        }
    }

    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::AddLearner { node, address } => {
                let member = Member { address: address.clone(), votes: false, level: 0, birth: 0 };
                self.members.insert(*node, member);
            }
            Change::Promote(node) => {
                if let Some(member) = self.members.get_mut(node) {
                    member.votes = true;
                }
            }
            Change::Remove(node) => {
                self.members.remove(node);
                self.removed.push(*node);
            }
        }
    }

    /// Records a member's folder, once and for all.
    pub(crate) fn know_birth(&mut self, node: NodeId, birth: u64) {
        if let Some(member) = self.members.get_mut(&node).filter(|member| member.birth == 0) {
            member.birth = birth;
        }
    }

    /// Records the level that a node supports. The level in force rises once all members support
    /// it. A learner that never reported one does not count: it may never start, and must support
    /// the level if it does.
    pub(crate) fn know_level(&mut self, node: NodeId, level: u16) {
        if let Some(member) = self.members.get_mut(&node) {
            member.level = level;
        }
        self.level = self.level.max(self.level_of_all());
    }

    fn level_of_all(&self) -> u16 {
        let counts = |member: &&Member| member.votes || member.level > 0;
        self.members.values().filter(counts).map(|member| member.level).min().unwrap_or(0)
    }

    /// Whether the level in force would rise with the next report: the member that held it back was
    /// removed.
    pub(crate) fn could_rise(&self) -> bool {
        self.level < self.level_of_all()
    }

    /// Records a report; returns what a majority of the voters computed there, once it is known.
    pub(crate) fn note(&mut self, report: Report) -> Option<u64> {
        if !self.members.contains_key(&report.node) {
            return None;
        }
        self.reports.entry(report.index).or_default().insert(report.node, report.digest);
        while self.reports.len() > REPORTS_KEPT {
            self.reports.pop_first();
        }
        let reports = self.reports.get(&report.index)?;
        let agrees = |id: &NodeId| reports.get(id) == Some(&report.digest);
        let agreeing = self.voters().filter(agrees).count();
        (agreeing * 2 > self.voters().count()).then_some(report.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Boot, Busy, Config, Input, Loaded, Moment, Output, Reply, RequestTag};
    use crate::node::Node;
    use holdfast_core::{Answer, Door, Limits, SessionRef, State, Transaction};
    use holdfast_storage::{HardState, Position};

    fn transaction() -> Command {
        let (seen, writes, publish) = Default::default();
        Command::Transact(Transaction { door: Door::Redis, seen, seen_all: None, writes, publish })
    }

    /// A cluster that was created by a program of level 1.
    fn old(members: u64) -> Cluster {
        Cluster::begin_at(1, (1..=members).map(|id| (NodeId(id), String::new())))
    }

    #[test]
    fn transactions_wait_until_all_members_support_them() {
        let mut cluster = old(3);
        for id in 1..=3 {
            assert!(!cluster.all_know(&transaction()), "{cluster:?}");
            cluster.know_level(NodeId(id), LEVEL);
        }
        assert!(cluster.all_know(&transaction()));
        // New members must support it: the level never falls.
        cluster.apply(&Change::AddLearner { node: NodeId(4), address: String::new() });
        cluster.know_level(NodeId(4), 1);
        assert!(cluster.all_know(&transaction()));
    }

    /// A learner's report used to count like a voter's: with two of three voters wrong in the same
    /// way, or with one voter and a learner wrong, healthy nodes would have stopped.
    #[test]
    fn only_voters_count_towards_a_majority_of_reports() {
        let mut cluster = Cluster::begin((1..=3).map(|id| (NodeId(id), String::new())));
        cluster.apply(&Change::AddLearner { node: NodeId(4), address: String::new() });
        let report = |node, digest| Report { node: NodeId(node), index: 1_024, digest };
        assert_eq!(cluster.note(report(1, 7)), None);
        assert_eq!(cluster.note(report(4, 7)), None);
        assert_eq!(cluster.note(report(2, 8)), None);
        assert_eq!(cluster.note(report(3, 8)), Some(8));
    }

    /// A node that was added but never started kept the level down for good.
    #[test]
    fn absent_learner_does_not_hold_back_the_level() {
        let mut cluster = old(3);
        cluster.apply(&Change::AddLearner { node: NodeId(4), address: String::new() });
        (1..=3).for_each(|id| cluster.know_level(NodeId(id), LEVEL));
        assert_eq!(cluster.level(), LEVEL);
        // One that started with an older version does.
        let mut cluster = old(3);
        cluster.apply(&Change::AddLearner { node: NodeId(4), address: String::new() });
        cluster.know_level(NodeId(4), 1);
        (1..=3).for_each(|id| cluster.know_level(NodeId(id), LEVEL));
        assert_eq!(cluster.level(), 1);
    }

    /// The level was computed only when a member reported one. If the last old member was removed
    /// instead of upgraded, the cluster stayed at the old level until a node was restarted.
    #[test]
    fn removal_of_the_last_old_member_lets_the_level_rise() {
        let mut cluster = old(3);
        (1..=2).for_each(|id| cluster.know_level(NodeId(id), LEVEL));
        assert!(!cluster.could_rise());
        cluster.apply(&Change::Remove(NodeId(3)));
        assert_eq!((cluster.level(), cluster.could_rise()), (1, true));
        cluster.know_level(NodeId(1), LEVEL);
        assert_eq!((cluster.level(), cluster.could_rise()), (LEVEL, false));
    }

    #[test]
    fn universally_supported_commands_do_not_wait() {
        let session = SessionRef {
            id: holdfast_core::SessionId(std::num::NonZeroU64::MIN),
            secret: holdfast_core::Secret([1; 16]),
        };
        assert!(old(3).all_know(&Command::CloseSession(session)));
        assert!(Cluster::begin([(NodeId(1), String::new())]).all_know(&transaction()));
    }

    /// A single node on a disk without latency.
    struct Alone {
        node: Node,
        inputs: Vec<Input>,
        now_ms: u64,
    }

    impl Alone {
        /// Lets time pass until the node has replied.
        fn reply(&mut self) -> Reply {
            for _ in 0..10_000 {
                self.now_ms += 1;
                let moment = Moment { mono_ms: self.now_ms, wall_ms: 0 };
                let mut out = Vec::new();
                self.node.turn(moment, self.inputs.drain(..), &mut out);
                let mut reply = None;
                for output in out {
                    match output {
                        Output::Persist(persist) => {
                            self.inputs.push(Input::Persisted(persist.number));
                        }
                        Output::Reply { reply: told, .. } => reply = Some(told),
                        _ => {}
                    }
                }
                if let Some(reply) = reply {
                    return reply;
                }
            }
            panic!("no reply within 10 s");
        }

        fn ask(&mut self) -> Reply {
            let command = transaction();
            self.inputs.push(Input::Submit { ask: RequestTag(1), request: None, command });
            self.reply()
        }
    }

    /// Data of an older version: transactions are refused until the node has recorded in the log
    /// which version runs now.
    #[test]
    fn old_folder_accepts_transactions_after_the_upgrade() {
        let at = Position { index: 1, term: 1 };
        let state = State::new(Limits::DEFAULT, 1);
        let loaded = Loaded { at, state, cluster: old(1) };
        let hard_state = HardState { term: 1, vote: 0, commit: 1 };
        let boot = Boot { loaded, hard_state, entries: Vec::new() };
        let secret = holdfast_core::Secret([1; 16]);
        let config = Config {
            id: NodeId(1),
            birth: 1,
            rng_key: 1,
            secret,
            nonce: 1,
            snapshot_every_bytes: 1 << 20,
            level: LEVEL,
        };
        let node = Node::new(config, boot).expect("a node");
        let mut alone = Alone { node, inputs: Vec::new(), now_ms: 0 };
        assert_eq!(alone.ask(), Reply::Busy(Busy::OlderMember));
        let answer =
            (0..10_000).map(|_| alone.ask()).find(|reply| matches!(reply, Reply::Answer(_)));
        assert_eq!(answer, Some(Reply::Answer(Ok(Answer::Transacted(Vec::new())))));
        assert_eq!(alone.node.cluster().level(), LEVEL);
    }
}
