//! Snapshots, off the loop: written on their own thread, read to be sent to other nodes, and
//! received from them.

use super::inbox::{Inbox, Post, StopReason};
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
    /// Only one is written at a time: this node's own, or an incoming one.
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
            let message = match write_snapshot(&self.disk, &task) {
                Ok(()) => Post::Node(Input::SnapshotWritten(task.at)),
                Err(WriteError::Fault(fault)) => Post::Stop(StopReason::Fault(fault.to_string())),
                Err(error) => {
                    tracing::warn!("no snapshot was written, so the log keeps growing: {error}");
                    Post::Node(Input::SnapshotNotWritten)
                }
            };
            inbox.post_always(message);
        }
    }

    /// The latest snapshot, to be sent; `None` if there is none yet.
    pub(crate) fn latest(&self) -> Result<Option<SnapshotReader<RealDisk>>, Fault> {
        read_snapshot(&self.disk)
    }

    /// Receives a snapshot from another node. It is stored whole, verified and durable, or not at
    /// all.
    pub(crate) fn receive(
        &self,
        at: Position,
        meta: &[u8],
        mut pieces: impl FnMut() -> Result<Piece, String>,
    ) -> Result<Loaded, NotTaken> {
        let _writing = match self.writing.try_lock() {
            Ok(writing) => writing,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(NotTaken::because("another snapshot is being written"));
            }
        };
        if let Some(latest) = self.latest()?.filter(|latest| latest.position() >= at) {
            // A snapshot that Raft ignored when it arrived, perhaps because the leader had changed.
            // The stream is still read to its end, so that the sender knows it arrived.
            while let Piece::Next(_) = pieces().map_err(NotTaken::Because)? {}
            return Ok(load(&latest, Limits::DEFAULT, random::number())?);
        }
        let mut writer = SnapshotWriter::begin(&self.disk, at, meta)?;
        loop {
            let next = match pieces() {
                Ok(Piece::Next(bytes)) => writer.piece(writer.next_piece(), &bytes),
                Ok(Piece::End { checksum }) if checksum == writer.checksum() => break,
                Ok(Piece::End { .. }) => {
                    Err(WriteError::Misuse("it was corrupted in transit".to_owned()))
                }
                Err(error) => Err(WriteError::Misuse(error)),
            };
            if let Err(error) = next {
                writer.abandon()?;
                return Err(error.into());
            }
        }
        writer.finish()?;
        let reader = self.latest()?.ok_or_else(|| NotTaken::because("it is gone"))?;
        Ok(load(&reader, Limits::DEFAULT, random::number())?)
    }
}

/// Why a snapshot was not taken.
pub(crate) enum NotTaken {
    /// May be retried later.
    Because(String),
    /// The disk can no longer be trusted: the node must stop.
    Fault(Fault),
}

impl NotTaken {
    fn because(why: &str) -> Self {
        Self::Because(why.to_owned())
    }
}

impl From<Fault> for NotTaken {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<WriteError> for NotTaken {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Fault(fault) => Self::Fault(fault),
            WriteError::Full { .. } | WriteError::Misuse(_) => Self::Because(error.to_string()),
        }
    }
}

/// The next part of a snapshot that is being received.
pub(crate) enum Piece {
    Next(Vec<u8>),
    End { checksum: u32 },
}
