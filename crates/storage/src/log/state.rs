//! The log's types: entries, the hard state, and the position of the last snapshot.

use super::record::Body;
use crate::fault::Fault;
use serde::{Deserialize, Serialize};

/// A position in the Raft log: an index, and the term of the entry there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// The first entry has index 1; 0 is before it.
    pub index: u64,
    /// The term of the leader that appended it.
    pub term: u64,
}

/// What a Raft node must never forget, in addition to its entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardState {
    /// The latest term seen.
    pub term: u64,
    /// The node it voted for in that term; 0 if none.
    pub vote: u64,
    /// The highest index known to be committed.
    pub commit: u64,
}

impl HardState {
    pub(crate) fn fields(self) -> [u64; 3] {
        [self.term, self.vote, self.commit]
    }
}

/// An entry of the Raft log. Its content is opaque here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Its position.
    pub at: Position,
    /// The kind of content.
    pub kind: EntryKind,
    /// Its content; empty for a new leader's first entry.
    pub data: Vec<u8>,
}

/// The kind of an entry's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A batch of commands.
    Batch,
    /// A membership change.
    Membership,
}

impl EntryKind {
    /// Decodes a record's byte. Values that a newer version may have written are left to the reader
    /// of the content.
    pub(crate) fn of(byte: u8) -> Self {
        if byte == Self::Membership as u8 { Self::Membership } else { Self::Batch }
    }
}

impl LogEntry {
    /// An entry with a batch.
    pub fn batch(index: u64, term: u64, data: &[u8]) -> Self {
        Self { at: Position { index, term }, kind: EntryKind::Batch, data: data.to_vec() }
    }

    pub(crate) fn body(&self) -> Body<'_> {
        let Position { index, term } = self.at;
        Body::Entry { index, term, kind: self.kind as u8, bytes: &self.data }
    }
}

/// The state of the log after some record, apart from its entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogState {
    /// Everything up to here is in a snapshot.
    pub(crate) compacted: Position,
    /// The last entry's index; that of the snapshot if there is no entry after it.
    pub(crate) last_index: u64,
    pub(crate) hard_state: HardState,
}

impl LogState {
    /// Takes in a record. Returns false if it can't follow what was there, which no valid log
    /// contains.
    pub(crate) fn apply(&mut self, body: Body<'_>) -> bool {
        match body {
            Body::Head(log_state) => return log_state == *self,
            Body::Entry { index, .. } => {
                if index <= self.compacted.index || index > self.last_index.saturating_add(1) {
                    return false;
                }
                self.last_index = index;
            }
            Body::HardState(hard_state) => self.hard_state = hard_state,
            Body::Compacted(position) => {
                if position.index < self.compacted.index || position.index > self.last_index {
                    return false;
                }
                self.compacted = position;
            }
            Body::Reset(position) => {
                if position.index < self.compacted.index {
                    return false;
                }
                self.compacted = position;
                self.last_index = position.index;
            }
            Body::Synced => {}
        }
        true
    }
}

/// The content of an opened log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The last one written; zeros if there is none.
    ///
    /// A crash may have kept an entry and lost the hard state that was written with it: see
    /// [`Recovered::settled_hard_state`].
    pub hard_state: HardState,
    /// Everything up to here is in a snapshot; zeros if there is none.
    pub compacted: Position,
    /// All entries after it, without a gap.
    pub entries: Vec<LogEntry>,
    /// What was cut off at the end, because it was incomplete and not vouched for.
    pub cut: Option<Cut>,
}

impl Recovered {
    /// The index of the last entry, or of the snapshot if there is no entry after it.
    pub fn last_index(&self) -> u64 {
        self.entries.last().map_or(self.compacted.index, |entry| entry.at.index)
    }

    /// Whether the log has, or had before its snapshot, the entry of that index and term.
    ///
    /// If the newest snapshot is later than `compacted`, there was a crash between the two: the
    /// caller must call [`compact`](super::Log::compact) if the log has the snapshot's position,
    /// and [`reset`](super::Log::reset) if it hasn't.
    pub fn has(&self, position: Position) -> bool {
        if position == self.compacted {
            return true;
        }
        let behind = position.index.checked_sub(self.compacted.index.saturating_add(1));
        let entry = behind
            .and_then(|behind| usize::try_from(behind).ok())
            .and_then(|behind| self.entries.get(behind));
        entry.is_some_and(|entry| entry.at.term == position.term)
    }

    /// Checks that the newest snapshot, if there is one, is the one that the log continues from, or
    /// a later one. Otherwise whatever is between the two is lost.
    pub fn check_snapshot(&self, newest: Option<Position>) -> Result<(), Fault> {
        let position = newest.unwrap_or_default();
        if position == self.compacted || position.index > self.compacted.index {
            return Ok(());
        }
        let Position { index, term } = self.compacted;
        let what = format!(
            "the log continues from index {index} of term {term}, but no snapshot covers it"
        );
        Err(Fault::damaged_file("snapshot", what))
    }

    /// The hard state with the term of the last entry, if that is higher: no vote was given in that
    /// term then, because a vote is synced before it is sent.
    pub fn settled_hard_state(&self) -> HardState {
        let term = self.entries.last().map_or(self.compacted.term, |entry| entry.at.term);
        if term > self.hard_state.term {
            return HardState { term, vote: 0, commit: self.hard_state.commit };
        }
        self.hard_state
    }
}

/// A torn end that was cut off when the log was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The file.
    pub file: String,
    /// Where it was cut, in bytes.
    pub offset: u64,
    /// How many bytes were cut off, not counting trailing zeros.
    pub bytes: u64,
}
