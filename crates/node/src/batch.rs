//! The content of a log entry: how much time has passed, and what to apply, in order.

use crate::cluster::{Report, since};
use crate::types::NodeId;
use holdfast_core::Proposal;
use holdfast_storage::{EntryKind, LogEntry};
use serde::{Deserialize, Serialize};

/// Written first in every entry; an entry of an unknown version stops the node.
const VERSION: u8 = 1;

/// The most bytes of items that a leader puts into one entry. A batch is one fsync and one
/// message to each follower: larger ones would delay the heartbeats behind them.
pub(crate) const BATCH_BYTES_MAX: usize = 1 << 20;

/// One entry: a tick, followed by items.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Batch {
    /// The time that the leader saw pass since the previous entry.
    pub(crate) elapsed_ms: u64,
    /// The leader's wall clock, for display.
    pub(crate) wall_ms: u64,
    pub(crate) items: Vec<Item>,
}

/// One thing to apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant, reason = "nearly all are proposals")]
pub(crate) enum Item {
    /// A command for the core.
    Propose(Proposal),
    /// What a node computed at an agreed index, for the others to compare with.
    Report(Report),
    /// The behaviour level that a node's program supports.
    Level { node: NodeId, level: u16 },
    /// Identifies a node's data folder.
    Birth { node: NodeId, birth: u64 },
}

impl Batch {
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Never fails: it is an in-memory buffer, and these types can always be encoded.
        postcard::to_extend(self, vec![VERSION]).unwrap_or_default()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        (*version == VERSION).then(|| postcard::from_bytes(rest).ok())?
    }
}

/// The lowest behaviour level whose programs can read this entry; `None` if it can't be decoded.
pub fn level_needed(entry: &LogEntry) -> Option<u16> {
    if entry.kind != EntryKind::Batch || entry.data.is_empty() {
        return Some(0);
    }
    let needed = |item: &Item| match item {
        Item::Propose(proposal) => since(&proposal.command),
        _ => 0,
    };
    Some(Batch::decode(&entry.data)?.items.iter().map(needed).max().unwrap_or(0))
}

/// The size of something in an entry, in bytes. What can't be encoded counts as too large.
pub(crate) fn encoded_bytes(part: &impl Serialize) -> usize {
    postcard::experimental::serialized_size(part).unwrap_or(usize::MAX)
}
