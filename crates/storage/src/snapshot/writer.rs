//! Writing a snapshot: this node's own, or one that another node sends.

use super::frame::{self, Kind, Totals};
use super::{FORMAT, file_name, list};
use crate::disk::Disk;
use crate::fault::{Fault, WriteError};
use crate::log::Position;
use crate::preamble::Preamble;
use crate::small_file::{TEMPORARY, put_in_place};

/// So much is written between syncs. One sync of everything at the end would stand in the way of
/// the log's syncs for as long as it takes.
const SYNC_EVERY_BYTES: u64 = 8 << 20;

/// A snapshot being written. It comes into being with [`SnapshotWriter::finish`]; whatever
/// happens before, the last one stays.
///
/// One snapshot of an index is written at a time. After an error the writer is of no more use: if
/// the disk was full, [`SnapshotWriter::abandon`] it, and begin again when there is room.
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
    /// Begins the snapshot of that log position. `meta` is what the reader must know before the
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

    /// Writes the next piece, which is number [`SnapshotWriter::next_piece`]. Another number is
    /// refused and changes nothing: a piece that comes twice, or too early, does no harm.
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

    /// Where in the log the snapshot stands.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Over everything so far: who receives a snapshot compares it with the sender's
    /// [`SnapshotReader::checksum`](super::SnapshotReader::checksum) before it finishes.
    pub fn checksum(&self) -> u32 {
        self.crc
    }

    /// Puts the snapshot in place of older ones. It is durable when this returns; only then may
    /// the log be compacted.
    pub fn finish(mut self) -> Result<(), WriteError> {
        let totals = self.totals.encode();
        // The end does not enter the checksum that both sides compare.
        if let Err(error) = self.frame(Kind::End, 0, &totals) {
            self.abandon()?;
            return Err(error);
        }
        self.disk.sync(&self.file).map_err(Fault::sync_failed(&self.temporary))?;
        put_in_place(&self.disk, &self.temporary, &file_name(self.position.index))?;
        Ok(delete_older(&self.disk)?)
    }

    /// Gives up, and gives the space back.
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

/// All but the newest: an own snapshot may be finished after a received one that is newer.
fn delete_older<D: Disk>(disk: &D) -> Result<(), Fault> {
    let indexes = list(disk)?;
    let Some((_, older)) = indexes.split_last() else { return Ok(()) };
    for index in older {
        let name = file_name(*index);
        disk.delete(&name).map_err(Fault::failed("delete", &name))?;
    }
    // No sync of the names: an older one that comes back is not the newest.
    Ok(())
}
