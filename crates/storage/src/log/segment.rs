//! A segment: one file of the log.
//!
//! A segment is created whole: its space, preamble and head are synced, and so is its name, before
//! anything else is written to it. So a segment without a valid head is either one whose creation
//! was interrupted by a crash, which holds nothing else, or it is damaged.

use super::record::{self, Body, SegmentId, Tip};
use super::state::LogState;
use crate::disk::Disk;
use crate::fault::{Fault, WriteError};
use crate::preamble::{Format, PREAMBLE_BYTES, Preamble};

pub(crate) const FORMAT: Format = Format { magic: *b"HOLDFLOG", version: 1 };

const PREFIX: &str = "log-";

/// The file name of a segment. Twenty digits, so that names sort like numbers.
pub(crate) fn file_name(segment: u64) -> String {
    format!("{PREFIX}{segment:020}")
}

/// The segment number of a file name; `None` if it is another kind of file.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?;
    let number = digits.parse().ok()?;
    (file_name(number) == name).then_some(number)
}

/// The offset of the first record after the head.
pub(crate) fn head_end() -> usize {
    PREAMBLE_BYTES + Body::Head(LogState::default()).record_bytes()
}

/// The segment that is written to.
#[derive(Debug)]
pub(crate) struct Active<F> {
    pub(crate) file: F,
    pub(crate) name: String,
    pub(crate) home: SegmentId,
    /// Where the next record goes.
    pub(crate) end: usize,
    /// The size of the file; writes stay below it.
    pub(crate) capacity: usize,
    /// Up to here a failed write may have left something. The next write covers it.
    pub(crate) scribbled: usize,
    /// Such leftovers were overwritten, and that is not synced yet.
    pub(crate) wiped: bool,
    /// Up to here the file's blocks have been written once.
    pub(crate) zeroed: usize,
    /// The highest index of its entries.
    pub(crate) index_max: u64,
}

impl<F> Active<F> {
    /// A segment whose records end at `end`, with nothing after them.
    pub(crate) fn new(file: F, name: String, home: SegmentId, end: usize, capacity: usize) -> Self {
        let (scribbled, zeroed) = (end, end);
        Self { file, name, home, end, capacity, scribbled, wiped: false, zeroed, index_max: 0 }
    }
}

/// A full segment, kept for its entries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closed {
    pub(crate) segment: u64,
    pub(crate) index_max: u64,
}

/// Creates a segment that continues the chain. Everything before must be synced. If it fails, no
/// trace is left, or else the fault means that the file names can't be trusted.
pub(crate) fn create<D: Disk>(
    disk: &D,
    home: SegmentId,
    capacity: usize,
    tip: Tip,
    log_state: LogState,
) -> Result<(Active<D::File>, Tip), WriteError> {
    let name = file_name(home.segment);
    let preamble = Preamble { version: FORMAT.version, first: home.segment, second: home.salt };
    let mut bytes = preamble.encode(FORMAT).to_vec();
    let tip =
        record::push(&mut bytes, home, PREAMBLE_BYTES, tip, tip.number, Body::Head(log_state));
    let file = match write_new(disk, &name, capacity, &bytes) {
        Ok(file) => file,
        Err(error) => {
            forget(disk, &name)?;
            return Err(error);
        }
    };
    disk.sync(&file).map_err(Fault::sync_failed(&name))?;
    disk.sync_dir().map_err(Fault::sync_failed("."))?;
    let end = bytes.len();
    Ok((Active::new(file, name, home, end, capacity), tip))
}

fn write_new<D: Disk>(
    disk: &D,
    name: &str,
    capacity: usize,
    bytes: &[u8],
) -> Result<D::File, WriteError> {
    let file = disk.create(name).map_err(WriteError::of("create", name))?;
    disk.preallocate(&file, capacity as u64).map_err(WriteError::of("allocate", name))?;
    disk.write_at(&file, 0, bytes).map_err(WriteError::of("write to", name))?;
    Ok(file)
}

/// Deletes a segment durably: if the file came back after a crash, the log would seem to continue
/// in it, although it continued in the previous segment.
fn forget<D: Disk>(disk: &D, name: &str) -> Result<(), Fault> {
    match disk.delete(name) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Fault::failed("delete", name)(error))
        }
        _ => disk.sync_dir().map_err(Fault::sync_failed(".")),
    }
}
