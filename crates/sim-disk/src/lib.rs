//! A disk in memory that can lose, tear and damage what real disks lose, tear and damage.

mod crash;
mod state;

use holdfast_storage::Disk;
use state::{Change, State};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A simulated disk. It does the same for the same calls and the same random numbers.
///
/// A clone is another handle onto the same disk, as with every [`Disk`]; [`SimDisk::fork`] makes
/// another disk.
#[derive(Debug, Clone, Default)]
pub struct SimDisk {
    pub(crate) state: Arc<Mutex<State>>,
}

/// An open file of a [`SimDisk`]; dead after a crash.
#[derive(Debug)]
pub struct SimFile {
    inode: u64,
    boot: u64,
    _open: Arc<()>,
}

/// What goes wrong, until it is changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimFaults {
    /// So many bytes more, and the disk is full. Growing a file takes from it; shrinking and
    /// deleting gives back.
    pub free_bytes: Option<u64>,
    /// After so many bytes more, writes stop half-way as on a full disk, even those into space
    /// that was allocated: copy-on-write file systems do that.
    pub write_full_after_bytes: Option<u64>,
    /// After so many bytes more, writes stop half-way with an I/O error.
    pub write_error_after_bytes: Option<u64>,
    /// So many syncs work, of files and of names; the next one fails, once. What it was to make
    /// durable stays readable and never becomes so: later syncs say Ok, as on Linux.
    pub sync_error_after: Option<u64>,
    /// So many changes work; then nothing does, until the crash.
    pub power_off_after: Option<u64>,
}

impl SimFaults {
    /// How many of these bytes a write gets done, and how it ends.
    pub(crate) fn allow(&mut self, bytes: usize) -> (usize, Option<io::ErrorKind>) {
        let full = (&mut self.write_full_after_bytes, io::ErrorKind::StorageFull);
        let broken = (&mut self.write_error_after_bytes, io::ErrorKind::Other);
        let mut allowed = bytes;
        let mut failure = None;
        for (left, kind) in [full, broken] {
            let Some(left) = left else { continue };
            if *left < allowed as u64 {
                allowed = usize::try_from(*left).unwrap_or(usize::MAX);
                failure = Some(kind);
            }
            *left -= allowed as u64;
        }
        (allowed, failure)
    }

    pub(crate) fn sync_fails(&mut self) -> bool {
        let left = self.sync_error_after;
        self.sync_error_after = left.and_then(|left| left.checked_sub(1));
        left == Some(0)
    }
}

/// What a disk has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SimCounts {
    /// Changes of any kind: where a power failure can fall.
    pub steps: u64,
    /// Write calls.
    pub writes: u64,
    /// Bytes written by them.
    pub bytes_written: u64,
    /// Syncs of files.
    pub syncs: u64,
    /// Syncs of the names.
    pub dir_syncs: u64,
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another disk with the same content, durable and not; handles stay with the first.
    pub fn fork(&self) -> Self {
        let mut state = self.state().clone();
        for inode in state.inodes.values_mut() {
            inode.handles = Arc::default();
        }
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Changes what goes wrong from now on.
    pub fn inject(&self, change: impl FnOnce(&mut SimFaults)) {
        change(&mut self.state().faults);
    }

    /// What it has done so far.
    pub fn counts(&self) -> SimCounts {
        self.state().counts
    }

    /// How many written bytes no sync has made durable.
    pub fn unsynced_bytes(&self) -> u64 {
        let state = self.state();
        let changes = state.inodes.values().flat_map(|inode| &inode.unsynced);
        changes.map(|unsynced| unsynced.change.bytes()).sum()
    }

    /// A file as programs see it.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        let inode = state.names.get(name)?;
        state.inodes.get(inode).map(|inode| inode.seen.clone())
    }

    /// Changes one bit of a file at rest. False if the file is not so long.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) -> bool {
        let mut state = self.state();
        let Ok(inode) = state.named(name).and_then(|id| state.inode(id)) else { return false };
        let flip = |content: &mut Vec<u8>| -> Option<()> {
            *content.get_mut(usize::try_from(offset).ok()?)? ^= 1 << (bit % 8);
            Some(())
        };
        let _ = flip(&mut inode.durable);
        flip(&mut inode.seen).is_some()
    }

    /// Ends the process that had the lock, without a loss of power: what was written stays
    /// readable, synced or not.
    pub fn end_process(&self) {
        let mut state = self.state();
        state.locked = false;
        state.boot += 1;
    }

    fn with<T>(
        &self,
        file: &SimFile,
        act: impl FnOnce(&mut State, u64) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.state();
        if state.boot != file.boot {
            return Err(io::Error::other("the handle is from before the crash"));
        }
        act(&mut state, file.inode)
    }

    fn handle(state: &mut State, id: u64) -> io::Result<SimFile> {
        let boot = state.boot;
        let open = Arc::clone(&state.inode(id)?.handles);
        Ok(SimFile { inode: id, boot, _open: open })
    }
}

impl Change {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Length(_) => 0,
            Self::Write { bytes, .. } => bytes.len() as u64,
        }
    }
}

fn position(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(io::Error::other)
}

impl Disk for SimDisk {
    type File = SimFile;

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<SimFile> {
        let mut state = self.state();
        let id = state.create(name)?;
        Self::handle(&mut state, id)
    }

    fn open(&self, name: &str) -> io::Result<SimFile> {
        let mut state = self.state();
        let id = state.named(name)?;
        Self::handle(&mut state, id)
    }

    fn size(&self, file: &SimFile) -> io::Result<u64> {
        self.with(file, |state, id| Ok(state.inode(id)?.seen.len() as u64))
    }

    fn read_at(&self, file: &SimFile, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.with(file, |state, id| {
            let start = position(offset)?;
            let content = state.inode(id)?.seen.get(start..start + buffer.len());
            buffer.copy_from_slice(content.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn preallocate(&self, file: &SimFile, bytes: u64) -> io::Result<()> {
        self.with(file, |state, id| state.preallocate(id, position(bytes)?))
    }

    fn write_at(&self, file: &SimFile, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(file, |state, id| state.write(id, position(offset)?, bytes))
    }

    fn sync(&self, file: &SimFile) -> io::Result<()> {
        self.with(file, State::sync)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.state().rename(from, to)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.state().delete(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.state().sync_dir()
    }

    fn lock(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.locked {
            let text = "the simulated disk is in use by another process";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
        state.locked = true;
        Ok(())
    }
}
