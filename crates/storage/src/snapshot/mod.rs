//! Snapshots: one file each, written piece by piece, either complete or absent.
//!
//! A file is a preamble, which has the log position, and frames: the caller's metadata, the pieces,
//! and an end that counts them. Each frame's checksum continues the previous one, so that a frame
//! can't be exchanged, left out or taken from another snapshot.

mod encoder;
mod frame;
mod reader;
mod writer;

pub use encoder::SnapshotEncoder;
pub use frame::PIECE_BYTES_MAX;
pub use reader::{Pieces, SnapshotReader, open_backup, open_latest};
pub use writer::SnapshotWriter;

use crate::disk::Disk;
use crate::fault::Fault;
use crate::preamble::Format;

const FORMAT: Format = Format { magic: *b"HOLDFSNP", version: 1 };

const PREFIX: &str = "snapshot-";

/// The file name of a snapshot. Two snapshots of the same index hold the same state.
fn file_name(index: u64) -> String {
    format!("{PREFIX}{index:020}")
}

fn index_of(name: &str) -> Option<u64> {
    let index = name.strip_prefix(PREFIX)?.parse().ok()?;
    (file_name(index) == name).then_some(index)
}

/// The finished snapshots, oldest first.
fn list<D: Disk>(disk: &D) -> Result<Vec<u64>, Fault> {
    let names = disk.list().map_err(Fault::failed("list", "."))?;
    let mut indexes: Vec<u64> = names.iter().filter_map(|name| index_of(name)).collect();
    indexes.sort_unstable();
    Ok(indexes)
}
