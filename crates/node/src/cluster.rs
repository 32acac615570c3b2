//! What is replicated beside the locks: who the members are, which behaviour level is in force,
//! and what each node computed at agreed indexes.

use crate::types::NodeId;
use holdfast_core::Command;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The behaviour level of this program. Raised whenever the core would apply an old entry in a
/// new way, or an entry may hold what older programs can't read.
pub const LEVEL: u16 = 2;

/// From this level on all members can read transactions.
const TRANSACTIONS_LEVEL: u16 = 2;

/// Written first wherever the members are kept.
const VERSION: u8 = 1;

/// Every so many entries the nodes compare what they computed.
pub(crate) const REPORT_EVERY: u64 = 1_024;

/// Agreed indexes that reports are kept of: a node that lags further compares at a later one.
const REPORTS_KEPT: usize = 8;

/// A member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Where its peers reach it.
    pub address: String,
    /// Whether its vote counts.
    pub votes: bool,
    /// The behaviour level that its program last reported.
    pub level: u16,
    /// What tells its folder from any other; 0 until it has said so.
    pub birth: u64,
}

/// What a node computed at an agreed index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) node: NodeId,
    pub(crate) index: u64,
    pub(crate) digest: u64,
}

/// A change of membership, as it stands in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A new member that follows without a vote.
    AddLearner {
        /// Its id, never used before.
        node: NodeId,
        /// Where its peers reach it.
        address: String,
    },
    /// A learner gets its vote.
    Promote(NodeId),
    /// A member goes; its id is never used again.
    Remove(NodeId),
}

/// The replicated part.
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
    /// A cluster that begins with these voters.
    pub fn begin(voters: impl IntoIterator<Item = (NodeId, String)>) -> Self {
        let member = |(id, address)| (id, Member { address, votes: true, level: LEVEL, birth: 0 });
        Self { members: voters.into_iter().map(member).collect(), level: LEVEL, ..Self::default() }
    }

    /// As it stands in a snapshot.
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Writing to a growing buffer fails only for types that postcard can't write at all.
        postcard::to_extend(self, vec![VERSION]).unwrap_or_default()
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

    /// Ids of members that were removed: never used again.
    pub fn removed(&self) -> &[NodeId] {
        &self.removed
    }

    /// The behaviour level in force.
    pub fn level(&self) -> u16 {
        self.level
    }

    /// Whether all members know this command: what one of them can't read must not enter the log.
    pub(crate) fn all_know(&self, command: &Command) -> bool {
        !matches!(command, Command::Transact(_)) || self.level >= TRANSACTIONS_LEVEL
    }

    /// Whether a change makes sense now; what is wrong otherwise.
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
                Err("it is no member")
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

    /// Notes a member's folder, once and for all.
    pub(crate) fn know_birth(&mut self, node: NodeId, birth: u64) {
        if let Some(member) = self.members.get_mut(&node).filter(|member| member.birth == 0) {
            member.birth = birth;
        }
    }

    /// Notes which level a node knows. The level in force rises when all members know it.
    pub(crate) fn know_level(&mut self, node: NodeId, level: u16) {
        if let Some(member) = self.members.get_mut(&node) {
            member.level = level;
        }
        let all_know = self.members.values().map(|member| member.level).min().unwrap_or(0);
        self.level = self.level.max(all_know);
    }

    /// Notes a report; tells what a majority of voters computed there, once it is known.
    pub(crate) fn note(&mut self, report: Report) -> Option<u64> {
        if !self.members.contains_key(&report.node) {
            return None;
        }
        self.reports.entry(report.index).or_default().insert(report.node, report.digest);
        while self.reports.len() > REPORTS_KEPT {
            self.reports.pop_first();
        }
        let voters = self.members.values().filter(|member| member.votes).count();
        let reports = self.reports.get(&report.index)?;
        let same = reports.values().filter(|digest| **digest == report.digest).count();
        (same * 2 > voters).then_some(report.digest)
    }
}

/// A digest of what was applied: order, kinds and numbers of all answers and effects. Written
/// out here, because every build of every version must compute the same.
pub(crate) fn mix(digest: u64, word: u64) -> u64 {
    let mixed = (digest ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ (mixed >> 29)
}
