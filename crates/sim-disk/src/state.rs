//! What the simulated disk holds: what programs see, what is durable, and what lies between.

use crate::{SimCounts, SimFaults};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// A change that no sync has made durable yet.
#[derive(Debug, Clone)]
pub(crate) struct Unsynced<C> {
    /// When it was made, over all files and names.
    pub(crate) moment: u64,
    pub(crate) change: C,
}

#[derive(Debug, Clone)]
pub(crate) enum Change {
    Length(usize),
    Write { offset: usize, bytes: Vec<u8> },
}

impl Change {
    pub(crate) fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Length(length) => content.resize(*length, 0),
            Self::Write { offset, bytes } => put(content, *offset, bytes),
        }
    }
}

/// Writes into `content`, which grows as needed.
pub(crate) fn put(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    if let Some(place) = content.get_mut(offset..end) {
        place.copy_from_slice(bytes);
    }
}

#[derive(Debug, Clone)]
pub(crate) enum NameChange {
    Create { name: String, inode: u64 },
    Rename { from: String, to: String },
    Delete { name: String },
}

impl NameChange {
    pub(crate) fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Create { name, inode } => {
                names.insert(name.clone(), *inode);
            }
            Self::Rename { from, to } => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            Self::Delete { name } => {
                names.remove(name);
            }
        }
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Self::Create { name, .. } | Self::Delete { name } => vec![name],
            Self::Rename { from, to } => vec![from, to],
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Inode {
    /// What a program reads.
    pub(crate) seen: Vec<u8>,
    /// What is left when nothing unsynced survives a crash.
    pub(crate) durable: Vec<u8>,
    pub(crate) unsynced: Vec<Unsynced<Change>>,
    /// Shared with the open handles: a file without a name lives as long as one of them.
    pub(crate) handles: Arc<()>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    pub(crate) inodes: BTreeMap<u64, Inode>,
    pub(crate) names: BTreeMap<String, u64>,
    pub(crate) durable_names: BTreeMap<String, u64>,
    pub(crate) unsynced_names: Vec<Unsynced<NameChange>>,
    pub(crate) faults: SimFaults,
    pub(crate) counts: SimCounts,
    /// Raised by a crash: handles from before are dead.
    pub(crate) boot: u64,
    pub(crate) locked: bool,
    next_inode: u64,
    moment: u64,
}

impl State {
    /// Every change begins here: a disk without power does nothing.
    pub(crate) fn step(&mut self) -> io::Result<()> {
        match &mut self.faults.power_off_after {
            Some(0) => return Err(io::Error::other("the power is off")),
            Some(steps) => *steps -= 1,
            None => {}
        }
        self.counts.steps += 1;
        self.moment += 1;
        Ok(())
    }

    pub(crate) fn inode(&mut self, id: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(crate) fn named(&self, name: &str) -> io::Result<u64> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(crate) fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.unsynced_names.push(Unsynced { moment: self.moment, change });
    }

    pub(crate) fn create(&mut self, name: &str) -> io::Result<u64> {
        self.step()?;
        if let Ok(id) = self.named(name) {
            self.resize(id, 0)?;
            return Ok(id);
        }
        self.next_inode += 1;
        let inode = self.next_inode;
        self.inodes.insert(inode, Inode::default());
        self.change_name(NameChange::Create { name: name.to_owned(), inode });
        Ok(inode)
    }

    pub(crate) fn preallocate(&mut self, id: u64, length: usize) -> io::Result<()> {
        self.step()?;
        let grown = length.saturating_sub(self.inode(id)?.seen.len());
        if self.grant(grown) < grown {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.resize(id, length)
    }

    fn resize(&mut self, id: u64, length: usize) -> io::Result<()> {
        let moment = self.moment;
        let inode = self.inode(id)?;
        let shrunk = inode.seen.len().saturating_sub(length);
        inode.seen.resize(length, 0);
        inode.unsynced.push(Unsynced { moment, change: Change::Length(length) });
        self.give_back(shrunk);
        Ok(())
    }

    pub(crate) fn write(&mut self, id: u64, offset: usize, bytes: &[u8]) -> io::Result<()> {
        self.step()?;
        self.counts.writes += 1;
        let end = offset + bytes.len();
        let grown = end.saturating_sub(self.inode(id)?.seen.len());
        let without_space = grown - self.grant(grown);
        let (allowed, failure) = self.faults.allow(bytes.len());
        let written = allowed.min(bytes.len() - without_space);
        let kept = bytes.get(..written).unwrap_or_default();
        self.counts.bytes_written += written as u64;
        let moment = self.moment;
        let inode = self.inode(id)?;
        put(&mut inode.seen, offset, kept);
        let change = Change::Write { offset, bytes: kept.to_vec() };
        inode.unsynced.push(Unsynced { moment, change });
        match failure {
            Some(kind) => Err(kind.into()),
            None if without_space > 0 => Err(io::ErrorKind::StorageFull.into()),
            None => Ok(()),
        }
    }

    pub(crate) fn sync(&mut self, id: u64) -> io::Result<()> {
        self.step()?;
        self.counts.syncs += 1;
        let fails = self.faults.sync_fails();
        let inode = self.inode(id)?;
        let unsynced = std::mem::take(&mut inode.unsynced);
        if fails {
            // As Linux does it: what could not be written stays readable and counts as clean, so
            // that a second sync says Ok, and a crash takes it.
            return Err(io::Error::other("simulated: the disk did not take the data"));
        }
        for unsynced in unsynced {
            unsynced.change.apply(&mut inode.durable);
        }
        Ok(())
    }

    pub(crate) fn sync_dir(&mut self) -> io::Result<()> {
        self.step()?;
        self.counts.dir_syncs += 1;
        let unsynced = std::mem::take(&mut self.unsynced_names);
        if self.faults.sync_fails() {
            return Err(io::Error::other("simulated: the disk did not take the names"));
        }
        for unsynced in unsynced {
            unsynced.change.apply(&mut self.durable_names);
        }
        self.forget_nameless();
        Ok(())
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.step()?;
        self.named(from)?;
        self.change_name(NameChange::Rename { from: from.to_owned(), to: to.to_owned() });
        Ok(())
    }

    pub(crate) fn delete(&mut self, name: &str) -> io::Result<()> {
        self.step()?;
        let id = self.named(name)?;
        let freed = self.inode(id)?.seen.len();
        self.give_back(freed);
        self.change_name(NameChange::Delete { name: name.to_owned() });
        Ok(())
    }

    /// Takes up to `bytes` of free space, and says how much there was.
    fn grant(&mut self, bytes: usize) -> usize {
        let Some(free) = &mut self.faults.free_bytes else { return bytes };
        let granted = usize::try_from(*free).unwrap_or(usize::MAX).min(bytes);
        *free -= granted as u64;
        granted
    }

    fn give_back(&mut self, bytes: usize) {
        if let Some(free) = &mut self.faults.free_bytes {
            *free += bytes as u64;
        }
    }

    /// A long simulation deletes many files: those that nobody can reach any more must go.
    pub(crate) fn forget_nameless(&mut self) {
        let Self { inodes, names, durable_names, .. } = self;
        let named =
            |id: &u64| names.values().chain(durable_names.values()).any(|named| named == id);
        if self.unsynced_names.is_empty() {
            inodes.retain(|id, inode| named(id) || Arc::strong_count(&inode.handles) > 1);
        }
    }
}
