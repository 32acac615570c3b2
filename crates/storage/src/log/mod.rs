//! The log of one Raft node: entries, the hard state, and the position of its snapshot.
//!
//! The caller keeps everything after the last snapshot in memory, so the log is only written, and
//! read once, by [`Log::open`] (`recover.rs` judges what a crash or a bad disk has left).
//!
//! Nothing is durable before [`Log::sync`]. Each record states up to where the log was synced when
//! it was written; that is what distinguishes damage from a write that a crash interrupted.

mod inspect;
mod record;
mod recover;
mod replay;
mod salvage;
mod segment;
mod state;
mod write;

pub use inspect::{RecordInfo, inspect};
pub use record::ENTRY_BYTES_MAX;
pub use salvage::{Salvaged, salvage};
pub use state::{Cut, EntryKind, HardState, LogEntry, Position, Recovered};

use crate::disk::Disk;
use crate::fault::{Fault, WriteError};
use record::{Body, SegmentId, Tip};
use segment::{Active, Closed};
use state::LogState;
use std::collections::VecDeque;

/// Reserved at the end of each segment for records that must be writable on a full disk: a
/// snapshot's position, which is what frees space, and the statement that everything is synced.
const RESERVE_BYTES: usize = 512;

/// Enough for a segment's head, the reserve and some entries.
const SEGMENT_BYTES_MIN: usize = 4096;

/// How to open a log.
#[derive(Debug, Clone)]
pub struct Options {
    /// How much is allocated at once. A segment is deleted as a whole, so this is also roughly what
    /// stays on disk from before a snapshot. A longer batch gets a longer segment.
    pub segment_bytes: usize,
    /// How far ahead new blocks are filled with zeros: the first write to an allocated block costs
    /// a change in the file system's own journal, later ones do not.
    pub zero_ahead_bytes: usize,
    /// For a new log: any number, preferably random. It is stored in the log.
    pub salt: u64,
    /// Whether the log must exist. If so, a missing log is damage and not a first start.
    pub must_exist: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, zero_ahead_bytes: 1 << 20, salt: 0, must_exist: false }
    }
}

/// The durable log. After a fault it refuses everything: only a new [`Log::open`] can find out what
/// is on disk.
#[derive(Debug)]
pub struct Log<D: Disk> {
    disk: D,
    options: Options,
    closed: VecDeque<Closed>,
    active: Active<D::File>,
    tip: Tip,
    log_state: LogState,
    /// All records below this number are on disk.
    synced: u64,
    /// The value of `synced` that the last written record states.
    claimed: u64,
    /// The value of `synced` that some record states which is itself on disk.
    vouched: u64,
    /// The number after the last record that has content.
    content_end: u64,
    stopped: Option<Fault>,
    /// Reused from one append to the next.
    buffer: Vec<u8>,
}

impl<D: Disk> Log<D> {
    /// Opens the log, or creates one. Verifies every record. Everything it returns is on disk.
    pub fn open(disk: &D, options: Options) -> Result<(Self, Recovered), Fault> {
        recover::open(disk, options)
    }

    /// The number that was drawn when this log was created: another log of the same node has
    /// another.
    pub fn salt(&self) -> u64 {
        self.active.home.salt
    }

    /// Writes entries and the hard state at the end; [`Log::sync`] makes them durable.
    ///
    /// The indexes of the entries must be consecutive. If the first does not come after the last
    /// one in the log, it replaces the entry at its index and all after it. Everything goes in one
    /// write. On an error none of it counts, though some of it may be found in the log after a
    /// crash, until a sync has had room to erase it ([`Log::is_clean`]): an index and term that
    /// have been tried must not be used with other content.
    pub fn append(
        &mut self,
        entries: &[LogEntry],
        hard_state: Option<HardState>,
    ) -> Result<(), WriteError> {
        self.check_running()?;
        self.check_order(entries)?;
        let entries = entries.iter().map(LogEntry::body);
        let bodies: Vec<Body<'_>> = entries.chain(hard_state.map(Body::HardState)).collect();
        if bodies.is_empty() {
            return Ok(());
        }
        self.make_room(&bodies, RESERVE_BYTES)?;
        self.write(&bodies)
    }

    /// Returns when everything appended is on disk. An error ends the use of this log and is never
    /// retried: the kernel may report success the second time although the data is gone.
    pub fn sync(&mut self) -> Result<(), Fault> {
        self.check_running()?;
        match self.wipe_scribbles() {
            Err(WriteError::Fault(fault)) => return Err(fault),
            // No room even for that: it will be tried again, and does not affect what was appended.
            Err(WriteError::Full { .. } | WriteError::Misuse(_)) | Ok(()) => {}
        }
        if self.is_synced() && !self.active.wiped {
            return Ok(());
        }
        let synced = self.disk.sync(&self.active.file);
        synced.map_err(|error| self.stop(Fault::sync_failed(&self.active.name)(error)))?;
        self.synced = self.tip.number;
        self.vouched = self.claimed;
        self.active.wiped = false;
        Ok(())
    }

    /// Durably records that everything is synced. Until then, if the disk damages the last records,
    /// they can't be distinguished from torn ones, so the caller does this when the log has been
    /// quiet for a moment. Does nothing if there is nothing new.
    pub fn vouch(&mut self) -> Result<(), Fault> {
        self.sync()?;
        let room = self.active.capacity.saturating_sub(self.active.end);
        if self.vouched >= self.content_end || room < Body::Synced.record_bytes() {
            return Ok(());
        }
        match self.write(&[Body::Synced]) {
            // Vouching is optional.
            Err(WriteError::Full { .. } | WriteError::Misuse(_)) => Ok(()),
            Err(WriteError::Fault(fault)) => Err(fault),
            Ok(()) => self.sync(),
        }
    }

    /// Vouches for everything and closes the files.
    pub fn close(mut self) -> Result<(), Fault> {
        self.vouch()
    }

    /// A durable snapshot of this node includes everything up to `position`: segments with nothing
    /// else are deleted. The log must have that entry; later ones stay. Durable when it returns.
    pub fn compact(&mut self, position: Position) -> Result<(), WriteError> {
        self.check_running()?;
        if position == self.log_state.compacted {
            return Ok(self.sync()?);
        }
        if position.index > self.log_state.last_index {
            let last = self.log_state.last_index;
            let text = format!("entry {} is not in the log, which ends at {last}", position.index);
            return Err(WriteError::Misuse(text));
        }
        self.go_on_from(position, Body::Compacted(position))
    }

    /// A durable snapshot, received from another node, replaces the whole log. Durable when it
    /// returns.
    pub fn reset(&mut self, position: Position) -> Result<(), WriteError> {
        self.go_on_from(position, Body::Reset(position))
    }

    /// The index of the last entry, or of the snapshot if there is no entry after it.
    pub fn last_index(&self) -> u64 {
        self.log_state.last_index
    }

    /// The position of the snapshot that the log continues from.
    pub fn compacted(&self) -> Position {
        self.log_state.compacted
    }

    /// The last hard state appended.
    pub fn hard_state(&self) -> HardState {
        self.log_state.hard_state
    }

    /// Whether everything appended is on disk.
    pub fn is_synced(&self) -> bool {
        self.synced == self.tip.number
    }

    /// Whether nothing of a failed append is left. A sync erases it, unless the disk is too full
    /// even for that.
    pub fn is_clean(&self) -> bool {
        self.active.scribbled <= self.active.end
    }

    /// The number of segment files.
    pub fn segments(&self) -> usize {
        self.closed.len() + 1
    }

    fn go_on_from(&mut self, position: Position, body: Body<'_>) -> Result<(), WriteError> {
        self.check_running()?;
        let compacted = self.log_state.compacted;
        if position.index < compacted.index {
            let text = format!("the log is compacted up to {} already", compacted.index);
            return Err(WriteError::Misuse(text));
        }
        self.make_room(&[body], 0)?;
        self.write(&[body])?;
        // Only now may a segment be deleted: without this record the log would start with a gap.
        self.sync()?;
        Ok(self.delete_unneeded()?)
    }

    /// Deletes the oldest segments whose entries are all in the snapshot.
    fn delete_unneeded(&mut self) -> Result<(), Fault> {
        while let Some(oldest) = self.closed.front() {
            if oldest.index_max > self.log_state.compacted.index {
                break;
            }
            let name = segment::file_name(oldest.segment);
            let deleted = self.disk.delete(&name);
            deleted.map_err(|error| self.stop(Fault::failed("delete", &name)(error)))?;
            self.closed.pop_front();
        }
        // No need to sync the names: a file that reappears is deleted when the log is opened.
        Ok(())
    }

    fn check_running(&self) -> Result<(), Fault> {
        self.stopped.clone().map_or(Ok(()), Err)
    }

    fn stop(&mut self, fault: Fault) -> Fault {
        self.stopped.get_or_insert(fault).clone()
    }

    fn check_order(&self, entries: &[LogEntry]) -> Result<(), WriteError> {
        let mut log_state = self.log_state;
        for (place, entry) in entries.iter().enumerate() {
            let expected = log_state.last_index.saturating_add(1);
            // Only the first entry may go back.
            if !log_state.apply(entry.body()) || (place > 0 && entry.at.index != expected) {
                let index = entry.at.index;
                let text = format!("entry {index} can't follow: the next one is {expected}");
                return Err(WriteError::Misuse(text));
            }
            if entry.data.len() > ENTRY_BYTES_MAX {
                let index = entry.at.index;
                let text = format!("entry {index} is longer than {ENTRY_BYTES_MAX} bytes");
                return Err(WriteError::Misuse(text));
            }
        }
        Ok(())
    }

    /// Switches to a new segment if the records do not fit into this one.
    fn make_room(&mut self, bodies: &[Body<'_>], reserve: usize) -> Result<(), WriteError> {
        let needed = reserve + bodies.iter().map(|body| body.record_bytes()).sum::<usize>();
        if self.active.end + needed <= self.active.capacity {
            return Ok(());
        }
        // A new segment vouches for all of this one: what a failed append left must be gone, and
        // what was written must be on disk.
        self.wipe_scribbles()?;
        self.sync()?;
        let home = SegmentId { segment: self.active.home.segment + 1, ..self.active.home };
        let capacity = self.segment_bytes().max(segment::head_end() + needed + RESERVE_BYTES);
        let created = segment::create(&self.disk, home, capacity, self.tip, self.log_state);
        let (active, tip) = created.map_err(|error| self.stop_if_fault(error))?;
        let old = std::mem::replace(&mut self.active, active);
        let (segment, index_max) = (old.home.segment, old.index_max);
        self.closed.push_back(Closed { segment, index_max });
        (self.claimed, self.vouched) = (self.tip.number, self.tip.number);
        (self.tip, self.synced) = (tip, tip.number);
        Ok(())
    }

    fn segment_bytes(&self) -> usize {
        self.options.segment_bytes.max(SEGMENT_BYTES_MIN)
    }

    fn stop_if_fault(&mut self, error: WriteError) -> WriteError {
        match error {
            WriteError::Fault(fault) => WriteError::Fault(self.stop(fault)),
            other => other,
        }
    }
}
