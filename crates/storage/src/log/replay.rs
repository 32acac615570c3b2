//! Reads records one after the other and accumulates their content.

use super::record::{Body, Record, SegmentId, Tip};
use super::segment::Closed;
use super::state::{EntryKind, LogEntry, LogState, Position};
use crate::fault::Fault;
use std::collections::VecDeque;

/// The result of the records read so far.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    pub(crate) tip: Tip,
    pub(crate) log_state: LogState,
    /// Entries after `log_state.compacted`; the first ones may be missing while reading, if they
    /// were in a deleted segment and a later record states that a snapshot has them.
    pub(crate) entries: VecDeque<LogEntry>,
    /// The segments before the one being read.
    pub(crate) closed: VecDeque<Closed>,
    pub(crate) index_max: u64,
    /// The highest number up to which a record states that the log was synced.
    pub(crate) claimed: u64,
    pub(crate) content_end: u64,
}

impl Replay {
    /// Starts with the head of the oldest segment, which tells where the log starts.
    pub(crate) fn begin(head: &Record<'_>) -> Option<Self> {
        let Body::Head(log_state) = head.body()? else { return None };
        Some(Self { tip: head.tip_before(), log_state, ..Self::default() })
    }

    /// Takes in the records from that offset on, as long as they are valid and consecutive. Returns
    /// the offset of each, and where they end.
    pub(crate) fn read(
        &mut self,
        segment: &[u8],
        from: usize,
        home: SegmentId,
        file: &str,
    ) -> Result<ValidRecords, Fault> {
        let mut read = ValidRecords { offsets: Vec::new(), end: from };
        while let Some(record) = Record::at(segment, read.end, home) {
            if !record.follows(self.tip) {
                break;
            }
            self.take_in(&record).ok_or_else(|| {
                let what = "a record's checksum is right, but its content is invalid";
                Fault::damaged(file, read.end as u64, what)
            })?;
            read.offsets.push(read.end);
            read.end += record.bytes;
        }
        Ok(read)
    }

    fn take_in(&mut self, record: &Record<'_>) -> Option<()> {
        let body = record.body()?;
        let sound = self.log_state.apply(body) && record.synced <= record.number;
        sound.then_some(())?;
        self.tip = record.tip();
        self.claimed = self.claimed.max(record.synced);
        if body.is_content() {
            self.content_end = self.tip.number;
        }
        match body {
            Body::Entry { index, term, kind, bytes } => {
                let (at, kind) = (Position { index, term }, EntryKind::of(kind));
                self.put_entry(LogEntry { at, kind, data: bytes.to_vec() });
            }
            Body::Compacted(position) => self.drop_through(position),
            Body::Reset(_) => {
                self.entries.clear();
                self.index_max = 0;
                self.closed.iter_mut().for_each(|closed| closed.index_max = 0);
            }
            Body::Head(_) | Body::HardState(_) | Body::Synced => {}
        }
        Some(())
    }

    fn put_entry(&mut self, entry: LogEntry) {
        self.index_max = self.index_max.max(entry.at.index);
        let first = self.entries.front().map_or(entry.at.index, |first| first.at.index);
        let before = usize::try_from(entry.at.index.saturating_sub(first)).unwrap_or(usize::MAX);
        self.entries.truncate(before);
        self.entries.push_back(entry);
    }

    fn drop_through(&mut self, position: Position) {
        while self.entries.front().is_some_and(|entry| entry.at.index <= position.index) {
            self.entries.pop_front();
        }
    }

    /// Called when the segment that was read is not the last one.
    pub(crate) fn close_segment(&mut self, segment: u64) {
        let index_max = std::mem::take(&mut self.index_max);
        self.closed.push_back(Closed { segment, index_max });
    }

    /// Whether every entry after the snapshot is there.
    pub(crate) fn is_whole(&self) -> bool {
        let first_index = self.log_state.compacted.index + 1;
        match self.entries.front() {
            Some(first) => first.at.index == first_index,
            None => self.log_state.last_index < first_index,
        }
    }
}

/// The valid records of a segment.
#[derive(Debug)]
pub(crate) struct ValidRecords {
    /// The offset of each record.
    pub(crate) offsets: Vec<usize>,
    /// The offset where the next one would be.
    pub(crate) end: usize,
}
