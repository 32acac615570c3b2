//! Backups: writes a consistent copy of everything to one file, and restores one as a new cluster.

use crate::data::{DataDir, claim, load_lost};
use crate::restoring;
use axum::body::Bytes;
use holdfast_node::{
    Loaded, Node, Salvage, SnapshotTask, backup, read_backup, salvage, verify_backup,
};
use holdfast_storage::{Identity, RealDisk};
use std::io;
use std::path::Path;
use tokio::sync::mpsc::channel;
use tokio::task::spawn_blocking;
use tokio_stream::wrappers::ReceiverStream;

/// Encoded parts that may wait for a slow reader.
const PARTS_AHEAD: usize = 2;

/// A consistent copy of the state, to be streamed as a backup.
pub(crate) struct StateCopy(SnapshotTask);

impl StateCopy {
    pub(crate) fn of(node: &Node) -> Self {
        Self(node.copy())
    }

    /// The index of the last entry included.
    pub(crate) fn index(&self) -> u64 {
        self.0.at.index
    }

    /// Streams the encoded copy from a blocking thread, no faster than it is read. If something
    /// can't be encoded and read back, the stream ends with an error.
    pub(crate) fn stream(self) -> ReceiverStream<Result<Bytes, io::Error>> {
        let (parts, receiver) = channel(PARTS_AHEAD);
        spawn_blocking(move || {
            for part in backup(&self.0) {
                if let Err(why) = &part {
                    tracing::error!("no backup could be made: {why}");
                }
                if parts.blocking_send(part.map(Bytes::from).map_err(io::Error::other)).is_err() {
                    // The client has hung up.
                    return;
                }
            }
        });
        ReceiverStream::new(receiver)
    }
}

/// Checks that a backup file is complete and could be restored, by reading every record.
pub fn verify(file: &Path) -> Result<(), String> {
    let (disk, name) = open(file)?;
    verify_backup(&disk, name)
}

/// Loads a backup file.
fn read(file: &Path) -> Result<Loaded, String> {
    let (disk, name) = open(file)?;
    let shown = file.display();
    read_backup(&disk, name).map_err(|fault| format!("{shown} can't be restored: {fault}"))
}

/// The directory and file name of a backup.
fn open(file: &Path) -> Result<(RealDisk, &str), String> {
    let shown = file.display();
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| format!("{shown} is not the name of a file"))?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    if !file.is_file() {
        return Err(format!("there is no backup {shown}"));
    }
    let disk = RealDisk::open(folder).map_err(|error| format!("can't read {shown}: {error}"))?;
    Ok((disk, name))
}

/// Where the content of a new cluster comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source<'a> {
    /// A backup file.
    Backup(&'a Path),
    /// The damaged folder of a single-node cluster: what can't be read is lost.
    Damaged(&'a Path),
}

/// Starts a new single-node cluster in an empty folder, with a new key, from a backup or from what
/// is left of a damaged folder. If it is interrupted, the folder refuses to start, and calling it
/// again starts over.
pub fn restore(source: &Source<'_>, place: &DataDir, unix_s: u64) -> Result<Restoration, String> {
    match source {
        Source::Backup(file) => {
            // First: a mistyped path must leave nothing behind.
            open(file)?;
            let disk = restoring::begin(&place.folder)?;
            begin(place, &disk, (read(file)?, None), unix_s)
        }
        Source::Damaged(folder) => {
            if !folder.is_dir() {
                return Err(format!("there is no folder {}", folder.display()));
            }
            // Locked until everything is copied: its node must not be running, and must not be
            // started.
            let damaged = claim(folder)?;
            let disk = restoring::begin(&place.folder)?;
            begin(place, &disk, read_damaged(folder, &damaged)?, unix_s)
        }
    }
}

/// Starts the new cluster from what was read.
fn begin(
    place: &DataDir,
    disk: &RealDisk,
    (loaded, lost): (Loaded, Option<String>),
    unix_s: u64,
) -> Result<Restoration, String> {
    let taken_at = loaded.at.index;
    let restored = place.begin_restored(disk, loaded, unix_s)?;
    Ok(Restoration { taken_at, restored, lost })
}

/// What can be read from the damaged folder of a single-node cluster, and what was lost.
fn read_damaged(folder: &Path, disk: &RealDisk) -> Result<(Loaded, Option<String>), String> {
    let shown = folder.display();
    // The node was removed, or the folder is a copy: the data that counts is elsewhere.
    if let Ok(Some((why, false))) = load_lost(disk) {
        return Err(format!("{shown} must not be used any more: {why}"));
    }
    let Salvage { node, loaded, damage } = salvage(disk)?;
    // The identity may itself be damaged.
    let identity = Identity::load(disk).ok().flatten();
    if let Some(other) = identity.filter(|identity| identity.node != node.0) {
        return Err(format!(
            "{shown} is the folder of node {}, and the only voter is node {node}: use the folder of \
             node {node}, or restore a backup",
            other.node
        ));
    }
    Ok((loaded, damage.map(|fault| fault.to_string())))
}

/// The result of a restore.
#[derive(Debug)]
pub struct Restoration {
    /// The index of the old cluster's last entry that it includes.
    pub taken_at: u64,
    /// How many sessions and locks ended, and how many are still held.
    pub restored: holdfast_core::Restored,
    /// What could not be read; `None` if nothing was lost.
    pub lost: Option<String>,
}
