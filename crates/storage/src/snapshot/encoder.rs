//! A snapshot as a stream of bytes that is not (yet) a file of this node: a backup.

use super::FORMAT;
use super::frame::{self, Kind, Totals};
use crate::fault::WriteError;
use crate::log::Position;
use crate::preamble::Preamble;

/// Encodes a snapshot file, part by part.
#[derive(Debug)]
pub struct SnapshotEncoder {
    crc: u32,
    totals: Totals,
}

impl SnapshotEncoder {
    /// Appends the start of the file.
    pub fn begin(position: Position, meta: &[u8], out: &mut Vec<u8>) -> Result<Self, WriteError> {
        let preamble =
            Preamble { version: FORMAT.version, first: position.index, second: position.term };
        out.extend_from_slice(&preamble.encode(FORMAT));
        let crc = frame::push(out, Kind::Meta, 0, preamble.crc(FORMAT.magic), meta)?;
        Ok(Self { crc, totals: Totals::default() })
    }

    /// Appends the next piece. One that no reader would accept is refused, and nothing is appended.
    pub fn piece(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), WriteError> {
        self.crc = frame::push(out, Kind::Piece, self.totals.pieces, self.crc, bytes)?;
        self.totals.pieces += 1;
        self.totals.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Appends the end. Without it the file is incomplete, and no reader accepts it.
    pub fn end(self, out: &mut Vec<u8>) -> Result<(), WriteError> {
        frame::push(out, Kind::End, 0, self.crc, &self.totals.encode()).map(|_| ())
    }
}
