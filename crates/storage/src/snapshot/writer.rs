//! Writes a snapshot: this node's own, or one received from another node.

use super::frame::{self, Kind, Totals};
use super::{FORMAT, file_name, list};
use crate::disk::Disk;
use crate::fault::{Fault, WriteError};
use crate::log::Position;
use crate::preamble::Preamble;
use crate::small_file::{TEMPORARY, put_in_place};

/// How much is written between syncs. A single sync of everything at the end would delay the log's
/// syncs for as long as it takes.
const SYNC_EVERY_BYTES: u64 = 8 << 20;

/// A snapshot being written. It takes effect with [`SnapshotWriter::finish`]; whatever happens
/// before that, the previous one stays.
///
/// Only one snapshot of an index may be written at a time. After an error the writer must not be
/// used any more: if the disk was full, [`SnapshotWriter::abandon`] it, and start again when there
/// is room.
#[derive(Debug)]
pub struct SnapshotWriter<D: Disk> {
    disk: D,
    file: D::File,
    position: Position,
    temporary: String,
    end: u64,
    synced: u64,
    crc: u32,
    totals: Totals,
    buffer: Vec<u8>,
}

impl<D: Disk> SnapshotWriter<D> {
    /// Starts the snapshot of that log position. `meta` is what the reader must know before the
    /// first piece, such as the members of the cluster.
    pub fn begin(disk: &D, position: Position, meta: &[u8]) -> Result<Self, WriteError> {
        let temporary = format!("{}{TEMPORARY}", file_name(position.index));
        let file = disk.create(&temporary).map_err(WriteError::of("create", &temporary))?;
        let preamble =
            Preamble { version: FORMAT.version, first: position.index, second: position.term };
        let mut writer = Self {
            disk: disk.clone(),
            file,
            position,
            temporary,
            end: 0,
            synced: 0,
            crc: preamble.crc(FORMAT.magic),
            totals: Totals::default(),
            buffer: preamble.encode(FORMAT).to_vec(),
        };
        match writer.frame(Kind::Meta, 0, meta) {
            Ok(()) => Ok(writer),
            Err(error) => {
                writer.abandon()?;
                Err(error)
            }
        }
    }

    /// Writes the next piece, which must have the number [`SnapshotWriter::next_piece`]. Any other
    /// number is refused and changes nothing: a piece that arrives twice, or too early, does no
    /// harm.
    pub fn piece(&mut self, number: u64, bytes: &[u8]) -> Result<(), WriteError> {
        if number != self.totals.pieces {
            let expected = self.totals.pieces;
            let text = format!("piece {number} of the snapshot, and the next one is {expected}");
            return Err(WriteError::Misuse(text));
        }
        self.frame(Kind::Piece, number, bytes)?;
        self.totals.pieces += 1;
        self.totals.bytes += bytes.len() as u64;
        Ok(())
    }

    /// The number of the next piece, from 0.
    pub fn next_piece(&self) -> u64 {
        self.totals.pieces
    }

    /// The snapshot's position in the log.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The checksum over everything so far: a receiver compares it with the sender's
    /// [`SnapshotReader::checksum`](super::SnapshotReader::checksum) before it finishes.
    pub fn checksum(&self) -> u32 {
        self.crc
    }

    /// Puts the snapshot in the place of older ones. It is durable when this returns; only then may
    /// the log be compacted.
    pub fn finish(mut self) -> Result<(), WriteError> {
        let totals = self.totals.encode();
        // The end is not part of the checksum that both sides compare.
        if let Err(error) = self.frame(Kind::End, 0, &totals) {
            self.abandon()?;
            return Err(error);
        }
        self.disk.sync(&self.file).map_err(Fault::sync_failed(&self.temporary))?;
        put_in_place(&self.disk, &self.temporary, &file_name(self.position.index))?;
        Ok(delete_older(&self.disk)?)
    }

    /// Gives up and frees the space.
    pub fn abandon(self) -> Result<(), Fault> {
        self.disk.delete(&self.temporary).map_err(Fault::failed("delete", &self.temporary))
    }

    fn frame(&mut self, kind: Kind, number: u64, payload: &[u8]) -> Result<(), WriteError> {
        self.crc = frame::push(&mut self.buffer, kind, number, self.crc, payload)?;
        let written = self.disk.write_at(&self.file, self.end, &self.buffer);
        written.map_err(WriteError::of("write to", &self.temporary))?;
        self.end += self.buffer.len() as u64;
        self.buffer.clear();
        if self.end - self.synced >= SYNC_EVERY_BYTES {
            self.disk.sync(&self.file).map_err(Fault::sync_failed(&self.temporary))?;
            self.synced = self.end;
        }
        Ok(())
    }
}

/// Deletes all but the newest: this node's own snapshot may be finished after a received one that
/// is newer.
fn delete_older<D: Disk>(disk: &D) -> Result<(), Fault> {
    let indexes = list(disk)?;
    let Some((_, older)) = indexes.split_last() else { return Ok(()) };
    for index in older {
        let name = file_name(*index);
        disk.delete(&name).map_err(Fault::failed("delete", &name))?;
    }
    // No need to sync the names: an older one that reappears is not the newest.
    Ok(())
}
