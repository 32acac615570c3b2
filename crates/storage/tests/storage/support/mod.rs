//! A naive model of a log, next to a real one: what may be found after a crash?

use holdfast_sim_disk::{SimDisk, SimFaults};
use holdfast_storage::{
    Disk, EntryKind, Fault, HardState, Log, LogEntry, Options, Position, Recovered, WriteError,
};

/// Small segments, so that short tests have several.
pub(crate) fn options() -> Options {
    Options { segment_bytes: 4096, zero_ahead_bytes: 1024, salt: 0x5EED, must_exist: false }
}

pub(crate) fn entry(index: u64, term: u64, length: usize) -> LogEntry {
    let fill = |place: usize| (index as u8).wrapping_mul(31).wrapping_add(term as u8 ^ place as u8);
    let bytes: Vec<u8> = (0..length).map(fill).collect();
    let kind = if index.is_multiple_of(3) { EntryKind::Membership } else { EntryKind::Batch };
    LogEntry { at: at(index, term), kind, data: bytes }
}

/// Entries from `first` to `last`, all of the same length.
pub(crate) fn entries(first: u64, last: u64, term: u64, length: usize) -> Vec<LogEntry> {
    (first..=last).map(|index| entry(index, term, length)).collect()
}

pub(crate) fn hard_state(term: u64, vote: u64, commit: u64) -> HardState {
    HardState { term, vote, commit }
}

pub(crate) fn at(index: u64, term: u64) -> Position {
    Position { index, term }
}

pub(crate) fn open<D: Disk>(disk: &D) -> Result<(Log<D>, Recovered), Fault> {
    Log::open(disk, options())
}

/// The content of a log in the plainest form.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Content {
    pub(crate) compacted: Position,
    pub(crate) hard_state: HardState,
    pub(crate) entries: Vec<LogEntry>,
}

impl Content {
    pub(crate) fn last_index(&self) -> u64 {
        self.entries.last().map_or(self.compacted.index, |entry| entry.at.index)
    }

    pub(crate) fn term_at(&self, index: u64) -> u64 {
        let entry = self.entries.iter().find(|entry| entry.at.index == index);
        entry.map_or(self.compacted.term, |entry| entry.at.term)
    }

    fn append(&mut self, entry: &LogEntry) {
        self.entries.retain(|old| old.at.index < entry.at.index);
        self.entries.push(entry.clone());
    }

    fn compact(&mut self, position: Position) {
        self.entries.retain(|entry| entry.at.index > position.index);
        self.compacted = position;
    }
}

impl From<&Recovered> for Content {
    fn from(recovered: &Recovered) -> Self {
        let Recovered { hard_state, compacted, entries, .. } = recovered.clone();
        Self { compacted, hard_state, entries }
    }
}

/// A log and what it may contain after a crash: what it contained at the last sync, or that and
/// some whole records of what came after, in order. What an append wrote before it failed may be
/// found until a sync has had room to erase it.
pub(crate) struct Subject<D: Disk> {
    pub(crate) log: Log<D>,
    pub(crate) live: Content,
    pub(crate) possible: Vec<Content>,
    /// What failed appends may have left.
    failed: Vec<Content>,
}

impl<D: Disk> Subject<D> {
    pub(crate) fn open(disk: &D) -> Result<Self, Fault> {
        let (log, recovered) = open(disk)?;
        let live = Content::from(&recovered);
        assert_eq!(log.last_index(), live.last_index());
        assert_eq!((log.compacted(), log.hard_state()), (live.compacted, live.hard_state));
        Ok(Self { log, possible: vec![live.clone()], failed: Vec::new(), live })
    }

    fn now(&mut self, content: &Content) {
        self.possible.push(content.clone());
    }

    pub(crate) fn append(
        &mut self,
        entries: &[LogEntry],
        hard_state: Option<HardState>,
    ) -> Result<(), WriteError> {
        let mut content = self.live.clone();
        let before = self.possible.len();
        for entry in entries {
            content.append(entry);
            self.now(&content);
        }
        if let Some(hard_state) = hard_state {
            content.hard_state = hard_state;
            self.now(&content);
        }
        if let Err(error) = self.log.append(entries, hard_state) {
            self.failed.extend_from_slice(&self.possible[before..]);
            return Err(error);
        }
        self.live = content;
        Ok(())
    }

    pub(crate) fn sync(&mut self) -> Result<(), Fault> {
        self.log.sync()?;
        self.acknowledged();
        Ok(())
    }

    pub(crate) fn vouch(&mut self) -> Result<(), Fault> {
        self.log.vouch()?;
        self.acknowledged();
        Ok(())
    }

    fn acknowledged(&mut self) {
        assert!(self.log.is_synced());
        if self.log.is_clean() {
            self.failed.clear();
        }
        self.possible = vec![self.live.clone()];
        self.possible.extend_from_slice(&self.failed);
    }

    pub(crate) fn compact(&mut self, position: Position) -> Result<(), WriteError> {
        let mut content = self.live.clone();
        content.compact(position);
        self.now(&content);
        self.log.compact(position)?;
        self.live = content;
        self.acknowledged();
        Ok(())
    }

    pub(crate) fn reset(&mut self, position: Position) -> Result<(), WriteError> {
        let mut content = self.live.clone();
        content.entries.clear();
        content.compact(position);
        self.now(&content);
        self.log.reset(position)?;
        self.live = content;
        self.acknowledged();
        Ok(())
    }

    /// Opens the disk, which has crashed meanwhile, and checks that its content is possible.
    pub(crate) fn check(&self, disk: &SimDisk, story: &str) -> Subject<SimDisk> {
        check(&self.possible, disk, story)
    }
}

pub(crate) fn check(possible: &[Content], disk: &SimDisk, story: &str) -> Subject<SimDisk> {
    let found = Subject::open(disk).unwrap_or_else(|fault| panic!("{story}: {fault}"));
    assert!(
        possible.contains(&found.live),
        "{story}: found {:#?}\nwhich is none of {possible:#?}",
        found.live
    );
    found
}

/// The disk as it is after a loss of power, with nothing else wrong with it.
pub(crate) fn crashed(disk: &SimDisk, seed: u64) -> SimDisk {
    let disk = disk.fork();
    disk.inject(|faults| *faults = SimFaults::default());
    disk.crash(&mut { seed });
    disk
}

/// The damaged file, if the fault reports damage.
pub(crate) fn damaged_file(fault: &Fault) -> Option<&str> {
    match fault {
        Fault::Damaged { file, .. } => Some(file),
        _ => None,
    }
}

/// Runs each of these tests on a simulated and on a real disk.
macro_rules! on_both_disks {
    ($($story:ident),* $(,)?) => {
        mod on_a_simulated_disk {
            $(#[test] fn $story() { super::$story(&holdfast_sim_disk::SimDisk::new()); })*
        }
        mod on_a_real_disk {
            $(#[test] fn $story() {
                let folder = tempfile::tempdir().unwrap();
                super::$story(&holdfast_storage::RealDisk::open(folder.path()).unwrap());
            })*
        }
    };
}
