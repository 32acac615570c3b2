//! What a node keeps on disk: who it is, the last snapshot, and the log behind it. The same code
//! runs on real and simulated disks.

use crate::cluster::Cluster;
use crate::io::{Boot, Loaded, Persist, SnapshotTask};
use crate::types::{EntryKind, HardState, LogEntry, Position};
use holdfast_core::{Limits, Snapshot, State};
use holdfast_storage::{
    self as storage, Disk, Fault, Log, Options, SnapshotReader, SnapshotWriter, WriteError,
};

/// Where a new cluster's log begins: all its first members have the same snapshot there.
const BEGINNING: Position = Position { index: 1, term: 1 };

/// A node's files.
#[derive(Debug)]
pub struct NodeDisk<D: Disk> {
    disk: D,
    log: Log<D>,
}

impl<D: Disk> NodeDisk<D> {
    /// Begins a cluster: every first member does this with the same members.
    pub fn begin(disk: &D, cluster: &Cluster) -> Result<(), WriteError> {
        let snapshot = State::new(Limits::DEFAULT, 0).snapshot();
        write(disk, BEGINNING, cluster, &snapshot)
    }

    /// Opens what is there. `must_exist` says that this node has been started before, so that a
    /// missing log is damage and not a beginning.
    pub fn open(
        disk: &D,
        options: Options,
        limits: Limits,
        hash_key: u64,
    ) -> Result<(Self, Boot), Fault> {
        let snapshot = storage::open_latest(disk)?;
        let (mut log, recovered) = Log::open(disk, options)?;
        let loaded = match &snapshot {
            Some(reader) => load(reader, limits, hash_key)?,
            None => Loaded {
                at: Position::default(),
                state: State::new(limits, hash_key),
                cluster: Cluster::default(),
            },
        };
        // A crash may have fallen between a snapshot and what it means for the log.
        let at = to_storage(loaded.at);
        let behind = if recovered.has(at) {
            log.compact(at).map_err(not_now)?;
            recovered
                .entries
                .iter()
                .filter(|entry| entry.index > at.index)
                .map(from_storage)
                .collect()
        } else {
            log.reset(at).map_err(not_now)?;
            Vec::new()
        };
        let hard_state = recovered.settled_hard_state();
        let hard_state =
            HardState { term: hard_state.term, vote: hard_state.vote, commit: hard_state.commit };
        let boot = Boot { loaded, hard_state, entries: behind };
        Ok((Self { disk: disk.clone(), log }, boot))
    }

    /// Writes what must be durable; [`NodeDisk::sync`] makes it so.
    pub fn write(&mut self, persist: &Persist) -> Result<(), WriteError> {
        if let Some(at) = persist.installed {
            self.log.reset(to_storage(at))?;
        }
        let entries: Vec<storage::LogEntry<'_>> = persist
            .entries
            .iter()
            .map(|entry| {
                storage::LogEntry::new(entry.at.index, entry.at.term, entry.kind as u8, &entry.data)
            })
            .collect();
        let hard_state = persist.hard_state.map(|hard_state| storage::HardState {
            term: hard_state.term,
            vote: hard_state.vote,
            commit: hard_state.commit,
        });
        self.log.append(&entries, hard_state)
    }

    /// Returns when everything written is on disk.
    pub fn sync(&mut self) -> Result<(), Fault> {
        self.log.sync()
    }

    /// Says durably that everything is synced; to be called when the log has been quiet.
    pub fn vouch(&mut self) -> Result<(), Fault> {
        self.log.vouch()
    }

    /// A snapshot at this position is on disk: the log behind it may go.
    pub fn compact(&mut self, at: Position) -> Result<(), WriteError> {
        self.log.compact(to_storage(at))
    }

    /// Vouches for everything and lets go of the files.
    pub fn close(self) -> Result<(), Fault> {
        self.log.close()
    }

    /// The disk itself, for a snapshot to be written beside the log.
    pub fn disk(&self) -> &D {
        &self.disk
    }
}

/// Writes a snapshot, whole or not at all. Beside the log, so that the loop need not wait.
pub fn write_snapshot<D: Disk>(disk: &D, task: &SnapshotTask) -> Result<(), WriteError> {
    write(disk, task.at, &task.cluster, &task.snapshot)
}

fn write<D: Disk>(
    disk: &D,
    at: Position,
    cluster: &Cluster,
    snapshot: &Snapshot,
) -> Result<(), WriteError> {
    let mut writer = SnapshotWriter::begin(disk, to_storage(at), &cluster.encode())?;
    for (piece, number) in snapshot.pieces().zip(0..) {
        if let Err(error) = writer.piece(number, &piece) {
            // A full disk must get back what was taken.
            writer.abandon()?;
            return Err(error);
        }
    }
    writer.finish()
}

/// The last snapshot on disk, to be sent to a member that lags.
pub fn read_snapshot<D: Disk>(disk: &D) -> Result<Option<SnapshotReader<D>>, Fault> {
    storage::open_latest(disk)
}

/// What a snapshot holds.
pub fn load<D: Disk>(
    reader: &SnapshotReader<D>,
    limits: Limits,
    hash_key: u64,
) -> Result<Loaded, Fault> {
    let damaged = |what: String| Fault::Damaged { what, file: "snapshot".to_owned(), offset: None };
    let cluster = Cluster::decode(reader.meta())
        .ok_or_else(|| damaged("its members can't be read".to_owned()))?;
    let mut fault = None;
    let pieces = reader.pieces().map_while(|piece| piece.map_err(|error| fault = Some(error)).ok());
    let state = State::load(pieces, limits, hash_key);
    if let Some(fault) = fault {
        return Err(fault);
    }
    let state = state.map_err(|error| damaged(error.to_string()))?;
    let position = reader.position();
    Ok(Loaded { at: Position { index: position.index, term: position.term }, state, cluster })
}

fn to_storage(at: Position) -> storage::Position {
    storage::Position { index: at.index, term: at.term }
}

fn from_storage(entry: &storage::LogEntry<'static>) -> LogEntry {
    let kind = if entry.kind == EntryKind::Membership as u8 {
        EntryKind::Membership
    } else {
        EntryKind::Batch
    };
    let at = Position { index: entry.index, term: entry.term };
    LogEntry { at, kind, data: entry.bytes.to_vec() }
}

/// At the start a full disk is no different from one that fails: there is nobody to answer yet.
/// But nothing is lost, and the next start may find room. A log that can't go on from the snapshot
/// is damaged, or the snapshot is.
fn not_now(error: WriteError) -> Fault {
    match error {
        WriteError::Fault(fault) => fault,
        WriteError::Full { file, cause } => Fault::Failed { doing: "write to", file, cause },
        WriteError::Misuse(what) => Fault::Damaged { what, file: "log".to_owned(), offset: None },
    }
}
