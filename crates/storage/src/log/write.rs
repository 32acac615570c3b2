//! Writes records to the end of the active segment, in one write.

use super::Log;
use super::record::{self, Body};
use crate::bytes::ZEROS;
use crate::disk::Disk;
use crate::fault::WriteError;

/// Enough for usual batches; the memory of a rare larger one is freed.
const BUFFER_KEPT_BYTES: usize = 4 << 20;

impl<D: Disk> Log<D> {
    /// Writes records to the end of the active segment, which has room for them. If that fails, the
    /// log is as before, and the next write covers what this one may have left.
    pub(super) fn write(&mut self, bodies: &[Body<'_>]) -> Result<(), WriteError> {
        let start = self.active.end;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let mut tip = self.tip;
        for body in bodies {
            let offset = start + buffer.len();
            tip = record::push(&mut buffer, self.active.home, offset, tip, self.synced, *body);
        }
        let end = start + buffer.len();
        let written = self.put(start, end, &mut buffer);
        buffer.clear();
        buffer.shrink_to(BUFFER_KEPT_BYTES);
        self.buffer = buffer;
        written?;

        self.tip = tip;
        self.claimed = self.synced;
        self.active.end = end;
        for body in bodies {
            self.take_in(*body);
        }
        Ok(())
    }

    fn take_in(&mut self, body: Body<'_>) {
        let fits = self.log_state.apply(body);
        debug_assert!(fits, "checked before it was written");
        if body.is_content() {
            self.content_end = self.tip.number;
        }
        match body {
            Body::Entry { index, .. } => {
                self.active.index_max = self.active.index_max.max(index);
            }
            Body::Reset(_) => {
                // Nothing before it is needed, whatever its index.
                self.active.index_max = 0;
                self.closed.iter_mut().for_each(|closed| closed.index_max = 0);
            }
            _ => {}
        }
    }

    /// Writes the records, with zeros over what a failed write may have left after them.
    fn put(&mut self, start: usize, end: usize, buffer: &mut Vec<u8>) -> Result<(), WriteError> {
        self.zero_ahead(end)?;
        let covered = self.active.scribbled.max(end);
        buffer.resize(covered - start, 0);
        let written = self.disk.write_at(&self.active.file, start as u64, buffer);
        self.active.scribbled = if written.is_ok() { end } else { covered };
        self.settle(written)
    }

    /// Writes zeros over what a failed append left; the next sync makes them durable.
    ///
    /// Records of a failed append must not stay after the end: they would be found there when the
    /// log is opened again, and in a closed segment they would be taken for records that the next
    /// segment has lost.
    pub(super) fn wipe_scribbles(&mut self) -> Result<(), WriteError> {
        let (end, scribbled) = (self.active.end, self.active.scribbled);
        if scribbled <= end {
            return Ok(());
        }
        let zeros = vec![0; scribbled - end];
        let written = self.disk.write_at(&self.active.file, end as u64, &zeros);
        self.settle(written)?;
        self.active.scribbled = end;
        self.active.wiped = true;
        Ok(())
    }

    /// If the records up to `end` are the first in their blocks, so that their sync is slow anyway,
    /// also writes zeros to the blocks after them, so that the next syncs are fast.
    fn zero_ahead(&mut self, end: usize) -> Result<(), WriteError> {
        let ahead = self.options.zero_ahead_bytes;
        if ahead == 0 || end <= self.active.zeroed {
            return Ok(());
        }
        let until = end.next_multiple_of(ahead).min(self.active.capacity);
        let mut offset = end;
        while let Some(left) = until.checked_sub(offset).filter(|left| *left > 0) {
            let zeros = ZEROS.get(..left).unwrap_or(&ZEROS);
            let written = self.disk.write_at(&self.active.file, offset as u64, zeros);
            self.settle(written)?;
            offset += zeros.len();
        }
        self.active.zeroed = until;
        Ok(())
    }

    fn settle(&mut self, written: std::io::Result<()>) -> Result<(), WriteError> {
        let name = &self.active.name;
        written.map_err(WriteError::of("write to", name)).map_err(|error| self.stop_if_fault(error))
    }
}
