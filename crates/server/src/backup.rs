//! Backups: a consistent copy of everything as one file, and a new cluster made of one.

use crate::data::{Place, claim, load_lost};
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

/// Parts that wait for a slow reader.
const PARTS_AHEAD: usize = 2;

/// A consistent copy, to be streamed to wherever it is kept.
pub(crate) struct Copy(SnapshotTask);

impl Copy {
    pub(crate) fn of(node: &Node) -> Self {
        Self(node.copy())
    }

    /// The entry up to which it has everything.
    pub(crate) fn index(&self) -> u64 {
        self.0.at.index
    }

    /// Its bytes, encoded beside everything else, no faster than they are read.
    /// If something can't be encoded and read again, the stream breaks off with an error.
    pub(crate) fn stream(self) -> ReceiverStream<Result<Bytes, io::Error>> {
        let (parts, receiver) = channel(PARTS_AHEAD);
        spawn_blocking(move || {
            for part in backup(&self.0) {
                if let Err(why) = &part {
                    tracing::error!("no backup could be made: {why}");
                }
                if parts.blocking_send(part.map(Bytes::from).map_err(io::Error::other)).is_err() {
                    // Whoever wanted it has hung up.
                    return;
                }
            }
        });
        ReceiverStream::new(receiver)
    }
}

/// Whether a backup's file is whole and could be restored: every record of it is read.
pub fn verify(file: &Path) -> Result<(), String> {
    let (disk, name) = open(file)?;
    verify_backup(&disk, name)
}

/// What a backup's file holds.
fn read(file: &Path) -> Result<Loaded, String> {
    let (disk, name) = open(file)?;
    let shown = file.display();
    read_backup(&disk, name).map_err(|fault| format!("{shown} can't be restored: {fault}"))
}

/// Where a backup's file is.
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
    /// A backup's file.
    Backup(&'a Path),
    /// The damaged folder of a cluster of one: what can't be read is lost.
    Damaged(&'a Path),
}

/// Begins a new cluster of one in an empty folder, with a new key, from a backup or from what is
/// left of a damaged folder. If it is interrupted, the folder does not start, and the same call
/// starts over.
pub fn restore(source: &Source<'_>, place: &Place, unix_s: u64) -> Result<Restoration, String> {
    match source {
        Source::Backup(file) => {
            // First: a mistyped name must leave nothing behind.
            open(file)?;
            let disk = restoring::begin(&place.folder)?;
            begin(place, &disk, (read(file)?, None), unix_s)
        }
        Source::Damaged(folder) => {
            if !folder.is_dir() {
                return Err(format!("there is no folder {}", folder.display()));
            }
            // Locked until everything is copied: it must neither run nor be started.
            let damaged = claim(folder)?;
            let disk = restoring::begin(&place.folder)?;
            begin(place, &disk, read_damaged(folder, &damaged)?, unix_s)
        }
    }
}

/// Begins the new cluster with what was read.
fn begin(
    place: &Place,
    disk: &RealDisk,
    (loaded, lost): (Loaded, Option<String>),
    unix_s: u64,
) -> Result<Restoration, String> {
    let taken_at = loaded.at.index;
    let restored = place.begin_restored(disk, loaded, unix_s)?;
    Ok(Restoration { taken_at, restored, lost })
}

/// What is left of the damaged folder of a cluster of one, and what is not.
fn read_damaged(folder: &Path, disk: &RealDisk) -> Result<(Loaded, Option<String>), String> {
    let shown = folder.display();
    // One that was removed, or is a copy: what counts is elsewhere.
    if let Ok(Some((why, false))) = load_lost(disk) {
        return Err(format!("{shown} must not be used any more: {why}"));
    }
    let Salvage { node, loaded, damage } = salvage(disk)?;
    // It may be what is damaged.
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

/// What a restore did.
#[derive(Debug)]
pub struct Restoration {
    /// The entry up to which the old cluster is in it.
    pub taken_at: u64,
    /// What became of sessions and locks.
    pub restored: holdfast_core::Restored,
    /// What could not be read.
    pub lost: Option<String>,
}
