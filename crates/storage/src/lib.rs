//! The durable log, vote and snapshots of one Holdfast node, behind a [`Disk`] trait.
//!
//! The caller drives it: no threads, no clock, no async, nothing global. The same code runs on a
//! real folder ([`RealDisk`]) and, in tests, on a disk in memory that loses and damages data
//! (`holdfast_sim_disk`).
//!
//! The life of one entry:
//!
//! 1. [`Log::append`] encodes it as a record, whose checksum covers its location and the previous
//!    record, and which states up to where the log is synced. It is written, together with the rest
//!    of the batch and the hard state, in one write to a segment that was preallocated.
//! 2. [`Log::sync`] makes it durable. Now it may be acknowledged. If the sync fails, the log
//!    refuses everything from then on: what is on the disk is unknown.
//! 3. The next record, or [`Log::vouch`] after a quiet moment, states that it was synced. From then
//!    on the disk can't lose or change it unnoticed.
//! 4. A [`SnapshotWriter`] writes the state that the entry led to; [`Log::compact`] drops the
//!    entry, and deletes segments that are no longer needed.
//! 5. After a crash, [`Log::open`] reads every record. A torn record at the end is cut off if no
//!    other states that it was synced; otherwise this is a [`Fault`], and the node must not start.
//!
//! ```
//! use holdfast_sim_disk::SimDisk;
//! use holdfast_storage::{Log, LogEntry, Options};
//!
//! let disk = SimDisk::new();
//! let (mut log, _) = Log::open(&disk, Options { segment_bytes: 1 << 16, ..Options::default() })?;
//! log.append(&[LogEntry::batch(1, 1, b"acquire seat-12A")], None)?;
//! log.sync()?;
//! log.append(&[LogEntry::batch(2, 1, b"never acknowledged")], None)?;
//! disk.crash(&mut 7);
//!
//! let (_, recovered) = Log::open(&disk, Options::default())?;
//! assert_eq!(recovered.entries[0].data, b"acquire seat-12A");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/storage-format.md` draws every file byte by byte.

// A disk can contain anything: what can't be read is a fault, never a panic.
#![cfg_attr(
    not(test),
    deny(
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::unwrap_used
    )
)]

mod bytes;
mod disk;
mod fault;
mod identity;
mod log;
mod preamble;
mod small_file;
mod snapshot;

pub use disk::{Disk, RealDisk};
pub use fault::{Cause, Fault, WriteError};
pub use identity::Identity;
pub use log::{
    Cut, ENTRY_BYTES_MAX, EntryKind, HardState, Log, LogEntry, Options, Position, RecordInfo,
    Recovered, Salvaged, inspect, salvage,
};
pub use small_file::{FileKind, claim, read_file, write_file};
pub use snapshot::{
    PIECE_BYTES_MAX, Pieces, SnapshotEncoder, SnapshotReader, SnapshotWriter, open_backup,
    open_latest,
};
