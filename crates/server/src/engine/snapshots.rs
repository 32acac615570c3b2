//! Snapshots, off the loop: written on a thread of their own, read for and taken from other nodes.

use super::inbox::{End, Inbox, Post};
use crate::random;
use holdfast_core::Limits;
use holdfast_node::{Input, Loaded, SnapshotTask, load, read_snapshot, write_snapshot};
use holdfast_storage::{Fault, Position, RealDisk, SnapshotReader, SnapshotWriter, WriteError};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

/// The snapshots of this node's folder.
#[derive(Debug)]
pub(crate) struct Snapshots {
    disk: RealDisk,
    /// One is written at a time: this node's own, or one that comes in.
    writing: Mutex<()>,
}

impl Snapshots {
    pub(crate) fn new(disk: RealDisk) -> Self {
        Self { disk, writing: Mutex::new(()) }
    }

    /// Writes what the loop hands over, until the loop has ended.
    pub(crate) fn run(&self, tasks: &Receiver<Box<SnapshotTask>>, inbox: &Arc<Inbox>) {
        while let Ok(task) = tasks.recv() {
            let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
            let word = match write_snapshot(&self.disk, &task) {
                Ok(()) => Post::Input(Input::SnapshotWritten(task.at)),
                Err(WriteError::Fault(fault)) => Post::Stop(End::Fault(fault.to_string())),
                Err(error) => {
                    tracing::warn!("no snapshot now, the log stays longer: {error}");
                    Post::Input(Input::SnapshotNotWritten)
                }
            };
            inbox.post_always(word);
        }
    }

    /// The last one, to be sent.
    pub(crate) fn latest(&self) -> Result<Option<SnapshotReader<RealDisk>>, Fault> {
        read_snapshot(&self.disk)
    }

    /// Takes one that another node sends. Whole, verified and durable, or not at all.
    pub(crate) fn receive(
        &self,
        at: Position,
        meta: &[u8],
        mut pieces: impl FnMut() -> Result<Piece, String>,
    ) -> Result<Loaded, String> {
        let _writing = match self.writing.try_lock() {
            Ok(writing) => writing,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err("another snapshot is being written".into()),
        };
        let latest = self.latest().map_err(|fault| fault.to_string())?;
        if latest.is_some_and(|latest| latest.position() >= at) {
            return Err("this node has a snapshot as new already".into());
        }
        let text = |error: WriteError| error.to_string();
        let mut writer = SnapshotWriter::begin(&self.disk, at, meta).map_err(text)?;
        loop {
            let next = match pieces() {
                Ok(Piece::Next(bytes)) => writer.piece(writer.next_piece(), &bytes).map_err(text),
                Ok(Piece::End { checksum }) if checksum == writer.checksum() => break,
                Ok(Piece::End { .. }) => Err("it arrived changed".to_owned()),
                Err(error) => Err(error),
            };
            if let Err(error) = next {
                writer.abandon().map_err(|fault| fault.to_string())?;
                return Err(error);
            }
        }
        writer.finish().map_err(text)?;
        let reader = self.latest().map_err(|fault| fault.to_string())?;
        let reader = reader.ok_or_else(|| "it is gone".to_owned())?;
        load(&reader, Limits::DEFAULT, random::number()).map_err(|fault| fault.to_string())
    }
}

/// What comes next of a snapshot that is being received.
pub(crate) enum Piece {
    Next(Vec<u8>),
    End { checksum: u32 },
}
