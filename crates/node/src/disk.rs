//! A node's files: the latest snapshot and the log after it. The same code runs on real and
//! simulated disks.

use crate::cluster::{Change, Cluster, LEVEL};
use crate::io::{Boot, Config, Input, Loaded, Moment, Output, Persist, SnapshotTask};
use crate::node::{Node, too_old};
use crate::types::NodeId;
use holdfast_core::{Limits, NotEncoded, Restored, Secret, Snapshot, SnapshotCheck, State};
use holdfast_storage::{
    self as storage, Disk, EntryKind, Fault, HardState, Log, LogEntry, Options, Position,
    SnapshotEncoder, SnapshotReader, SnapshotWriter, WriteError,
};

/// Where a new cluster's log starts: all its first members have the same snapshot there.
const BEGINNING: Position = Position { index: 1, term: 1 };

/// A node's files.
#[derive(Debug)]
pub struct NodeDisk<D: Disk> {
    disk: D,
    log: Log<D>,
}

impl<D: Disk> NodeDisk<D> {
    /// Starts a cluster: every first member does this with the same members.
    pub fn begin(disk: &D, cluster: &Cluster) -> Result<(), WriteError> {
        let snapshot = State::new(Limits::DEFAULT, 0).snapshot();
        write(disk, BEGINNING, cluster, &snapshot)
    }

    /// Starts a single-node cluster from a backup. Nothing of the old cluster continues: its
    /// sessions end, its numbers are left far behind, and what was held needs recovery.
    pub fn begin_restored(
        disk: &D,
        mut loaded: Loaded,
        first: (NodeId, String),
        unix_s: u64,
    ) -> Result<Restored, String> {
        if loaded.cluster.level > LEVEL {
            return Err(too_old(loaded.cluster.level, LEVEL));
        }
        let restored = loaded.state.restore(unix_s).map_err(|error| error.to_string())?;
        let cluster = Cluster { level: loaded.cluster.level, ..Cluster::begin([first]) };
        let written = write(disk, BEGINNING, &cluster, &loaded.state.snapshot());
        written.map(|()| restored).map_err(|error| error.to_string())
    }

    /// Opens the existing files. `options.must_exist` means that this node has been started before,
    /// so that a missing log is damage and not a first start.
    pub fn open(
        disk: &D,
        options: Options,
        limits: Limits,
        hash_key: u64,
    ) -> Result<(Self, Boot), Fault> {
        let snapshot = storage::open_latest(disk)?;
        let (mut log, recovered) = Log::open(disk, options)?;
        recovered.check_snapshot(snapshot.as_ref().map(SnapshotReader::position))?;
        let loaded = match &snapshot {
            Some(reader) => load(reader, limits, hash_key)?,
            None => Loaded {
                at: Position::default(),
                state: State::new(limits, hash_key),
                cluster: Cluster::default(),
            },
        };
        // A crash may have occurred between writing a snapshot and adjusting the log to it.
        let at = loaded.at;
        let hard_state = recovered.settled_hard_state();
        let entries = if recovered.has(at) {
            log.compact(at).map_err(not_now)?;
            behind(recovered.entries, at)
        } else {
            log.reset(at).map_err(not_now)?;
            Vec::new()
        };
        let boot = Boot { loaded, hard_state, entries };
        Ok((Self { disk: disk.clone(), log }, boot))
    }

    /// Identifies this folder; drawn when it was created.
    pub fn birth(&self) -> u64 {
        self.log.salt()
    }

    /// Writes what must be durable; [`NodeDisk::sync`] makes it so.
    pub fn write(&mut self, persist: &Persist) -> Result<(), WriteError> {
        if let Some(at) = persist.installed {
            self.log.reset(at)?;
        }
        self.log.append(&persist.entries, persist.hard_state)
    }

    /// Returns when everything written is on disk.
    pub fn sync(&mut self) -> Result<(), Fault> {
        self.log.sync()
    }

    /// Durably records that everything is synced; to be called when the log has been quiet.
    pub fn vouch(&mut self) -> Result<(), Fault> {
        self.log.vouch()
    }

    /// A snapshot at this position is on disk: the log before it may be deleted.
    pub fn compact(&mut self, at: Position) -> Result<(), WriteError> {
        self.log.compact(at)
    }

    /// Vouches for everything and closes the files.
    pub fn close(self) -> Result<(), Fault> {
        self.log.close()
    }

    /// The disk itself, for writing a snapshot next to the log.
    pub fn disk(&self) -> &D {
        &self.disk
    }
}

/// Writes a snapshot, whole or not at all. Independent of the log, so that the loop need not wait.
pub fn write_snapshot<D: Disk>(disk: &D, task: &SnapshotTask) -> Result<(), WriteError> {
    write(disk, task.at, &task.cluster, &task.snapshot)
}

fn write<D: Disk>(
    disk: &D,
    at: Position,
    cluster: &Cluster,
    snapshot: &Snapshot,
) -> Result<(), WriteError> {
    let meta = cluster.encode().map_err(WriteError::Misuse)?;
    let mut writer = SnapshotWriter::begin(disk, at, &meta)?;
    for (piece, number) in snapshot.pieces().zip(0..) {
        let piece = piece.map_err(|error| WriteError::Misuse(error.to_string()));
        if let Err(error) = piece.and_then(|piece| writer.piece(number, &piece)) {
            // A partial file must not keep a full disk full.
            writer.abandon()?;
            return Err(error);
        }
    }
    writer.finish()
}

/// The bytes of a backup, which is a snapshot file, part by part. Every piece is decoded again
/// before it is handed out. Nothing follows an error: without its end the file is incomplete, and
/// is not accepted as a backup.
pub fn backup(task: &SnapshotTask) -> impl Iterator<Item = Result<Vec<u8>, String>> {
    let mut next = Some(Parts::Begin);
    let mut pieces = task.snapshot.pieces();
    std::iter::from_fn(move || {
        let parts = next.take()?;
        let mut part = Vec::new();
        let written = write_part(parts, task, &mut pieces, &mut part);
        Some(written.map(|more| {
            next = more;
            part
        }))
    })
}

/// Writes one part, and returns what comes next.
fn write_part(
    parts: Parts,
    task: &SnapshotTask,
    pieces: &mut impl Iterator<Item = Result<Vec<u8>, NotEncoded>>,
    part: &mut Vec<u8>,
) -> Result<Option<Parts>, String> {
    let Parts::Pieces(mut encoder, mut check) = parts else {
        let encoder = SnapshotEncoder::begin(task.at, &task.cluster.encode()?, part);
        let encoder = encoder.map_err(|error| error.to_string())?;
        return Ok(Some(Parts::Pieces(Box::new(encoder), Box::default())));
    };
    let Some(piece) = pieces.next() else {
        check.end().map_err(|error| error.to_string())?;
        return encoder.end(part).map(|()| None).map_err(|error| error.to_string());
    };
    let piece = piece.map_err(|error| error.to_string())?;
    check.piece(&piece).map_err(|error| error.to_string())?;
    encoder.piece(&piece, part).map_err(|error| error.to_string())?;
    Ok(Some(Parts::Pieces(encoder, check)))
}

/// The next part of a backup.
enum Parts {
    Begin,
    Pieces(Box<SnapshotEncoder>, Box<SnapshotCheck>),
}

/// Reads a backup file to its end to check that it could be restored. Takes no more memory than one
/// piece.
pub fn verify_backup<D: Disk>(disk: &D, name: &str) -> Result<(), String> {
    let reader = storage::open_backup(disk, name).map_err(|fault| fault.to_string())?;
    Cluster::decode(reader.meta()).ok_or("its members can't be read")?;
    let mut check = SnapshotCheck::default();
    for piece in reader.pieces() {
        let piece = piece.map_err(|fault| fault.to_string())?;
        check.piece(&piece).map_err(|error| error.to_string())?;
    }
    check.end().map_err(|error| error.to_string())
}

/// Loads a backup.
pub fn read_backup<D: Disk>(disk: &D, name: &str) -> Result<Loaded, Fault> {
    load(&storage::open_backup(disk, name)?, Limits::DEFAULT, 0)
}

/// Reads what it can from the damaged folder of a single-node cluster, and applies everything that
/// its log still has; also returns what could not be read. Fails if the newest readable
/// configuration has other voters: then this log alone does not tell what was acknowledged.
pub fn salvage<D: Disk>(disk: &D) -> Result<Salvage, String> {
    let snapshot = storage::open_latest(disk).map_err(|fault| fault.to_string())?;
    let snapshot = snapshot.ok_or("there is no snapshot: nothing can be saved without one")?;
    let loaded = load(&snapshot, Limits::DEFAULT, 0).map_err(|fault| fault.to_string())?;
    let log = storage::salvage(disk).map_err(|fault| fault.to_string())?;
    let entries = behind(log.entries, loaded.at);
    // Entries may be missing between the snapshot and the first one that is left.
    let joined = entries.first().is_none_or(|first| first.at.index == loaded.at.index + 1);
    let entries = if joined { entries } else { Vec::new() };
    let node = only_voter(&loaded.cluster, &entries)?;
    // What the only voter has on disk is committed, whether or not its commit index has been
    // written since.
    let commit = entries.last().map_or(loaded.at.index, |last| last.at.index);
    let (term, vote) = (log.hard_state.term, log.hard_state.vote);
    let hard_state = HardState { term, vote, commit };
    let loaded = replay(node, Boot { loaded, hard_state, entries })?;
    Ok(Salvage { node, loaded, damage: log.damage })
}

/// What was left in a damaged folder.
#[derive(Debug)]
pub struct Salvage {
    /// The only voter of its cluster.
    pub node: NodeId,
    /// Everything that could be read.
    pub loaded: Loaded,
    /// What could not be read; `None` if nothing was damaged.
    pub damage: Option<Fault>,
}

/// The only voter of the newest configuration in a log.
fn only_voter(cluster: &Cluster, entries: &[LogEntry]) -> Result<NodeId, String> {
    let mut newest = cluster.clone();
    for entry in entries.iter().filter(|entry| entry.kind == EntryKind::Membership) {
        if let Ok(change) = postcard::from_bytes::<Change>(&entry.data)
            && newest.check(&change).is_ok()
        {
            newest.apply(&change);
        }
    }
    let voters: Vec<NodeId> = newest.voters().collect();
    match voters.as_slice() {
        [only] => Ok(*only),
        voters => {
            let voters: Vec<String> = voters.iter().map(NodeId::to_string).collect();
            Err(format!(
                "this was not a cluster of one: its voters are nodes {}. Let the damaged node rejoin \
                 the others; if no majority of them is left, restore a backup",
                voters.join(", ")
            ))
        }
    }
}

/// Applies all entries with a temporary node: the same code that applied them before.
fn replay(id: NodeId, boot: Boot) -> Result<Loaded, String> {
    let last = boot.entries.last().map_or(boot.loaded.at.index, |last| last.at.index);
    let config = Config {
        id,
        birth: 0,
        rng_key: 0,
        secret: Secret([0; 16]),
        nonce: 0,
        snapshot_every_bytes: usize::MAX,
        level: LEVEL,
    };
    let mut node = Node::new(config, boot)?;
    let mut inputs = Vec::new();
    let mut out = Vec::new();
    let now = Moment { mono_ms: 0, wall_ms: 0 };
    while node.applied().index < last {
        let before = node.applied().index;
        node.turn(now, inputs.drain(..), &mut out);
        for output in out.drain(..) {
            match output {
                Output::Persist(persist) => inputs.push(Input::Persisted(persist.number)),
                Output::Stop(why) | Output::Lost(why) => return Err(why),
                _ => {}
            }
        }
        if node.applied().index == before && inputs.is_empty() {
            return Err(format!("entry {} can't be applied", before + 1));
        }
    }
    let at = node.applied();
    Ok(Loaded { at, cluster: node.cluster().clone(), state: node.into_state() })
}

/// The latest snapshot on disk, to be sent to a lagging member.
pub fn read_snapshot<D: Disk>(disk: &D) -> Result<Option<SnapshotReader<D>>, Fault> {
    storage::open_latest(disk)
}

/// Loads a snapshot.
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
    let mut state = state.map_err(|error| damaged(error.to_string()))?;
    state.set_level(cluster.level);
    Ok(Loaded { at: reader.position(), state, cluster })
}

/// The entries after a position.
fn behind(mut entries: Vec<LogEntry>, at: Position) -> Vec<LogEntry> {
    entries.retain(|entry| entry.at.index > at.index);
    entries
}

/// At startup a full disk is no different from a failing one: there is nobody to reply to yet. But
/// nothing is lost, and the next start may find room. If the log can't continue from the snapshot,
/// one of the two is damaged.
fn not_now(error: WriteError) -> Fault {
    match error {
        WriteError::Fault(fault) => fault,
        WriteError::Full { file, cause } => Fault::Failed { doing: "write to", file, cause },
        WriteError::Misuse(what) => Fault::Damaged { what, file: "log".to_owned(), offset: None },
    }
}
