//! Types that the node passes to a network, in addition to the entries and positions that a disk
//! takes too (`holdfast_storage`). The Raft library's types stay inside `consensus`.

use holdfast_storage::{LogEntry, Position};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A member of the cluster. An id is never reused once it has been removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The members with and without a vote.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Voters {
    /// Members that vote.
    pub voters: Vec<u64>,
    /// Members that follow without a vote.
    pub learners: Vec<u64>,
}

/// A Raft message in our own fields, so that no third-party decoder reads a peer's bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaftMessage {
    pub(crate) kind: i32,
    pub(crate) to: u64,
    pub(crate) from: u64,
    pub(crate) term: u64,
    pub(crate) log_term: u64,
    pub(crate) index: u64,
    pub(crate) entries: Vec<LogEntry>,
    pub(crate) commit: u64,
    pub(crate) commit_term: u64,
    pub(crate) snapshot: Option<(Position, Voters)>,
    pub(crate) request_snapshot: u64,
    pub(crate) reject: bool,
    pub(crate) reject_hint: u64,
    pub(crate) context: Vec<u8>,
    pub(crate) priority: i64,
}

impl RaftMessage {
    /// The sender.
    pub fn from(&self) -> NodeId {
        NodeId(self.from)
    }

    /// The position of the snapshot that it offers.
    pub fn snapshot_at(&self) -> Option<Position> {
        self.snapshot.as_ref().map(|(at, _)| *at)
    }

    /// The entries it carries.
    pub fn entries(&self) -> &[LogEntry] {
        &self.entries
    }
}
