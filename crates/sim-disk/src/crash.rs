//! What a loss of power leaves of a simulated disk.

use crate::SimDisk;
use crate::state::{Change, Inode, NameChange, State, Unsynced, put};
use std::collections::{BTreeMap, BTreeSet};

/// What a disk writes in one piece.
const SECTOR_BYTES: usize = 512;

/// The random numbers of a crash, drawn from a state that the caller keeps (splitmix64).
struct Chance<'a>(&'a mut u64);

impl Chance<'_> {
    fn draw(&mut self) -> u64 {
        *self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (*self.0 ^ (*self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.draw() % bound.max(1) as u64).unwrap_or(0)
    }
}

/// How a crash treats what was not synced. If every sector always had an even chance, a longer
/// write would never survive whole, and never be lost whole.
#[derive(Clone, Copy)]
struct Mood {
    /// How many of eight are kept.
    kept: usize,
    /// How many of eight are torn, of those not kept.
    torn: usize,
}

impl Mood {
    fn draw(chance: &mut Chance<'_>) -> Self {
        let kept = [0, 1, 4, 7, 8].get(chance.below(5)).copied().unwrap_or(4);
        Self { kept, torn: chance.below(3) * 2 }
    }

    /// How many bytes of a piece survive, from its front.
    fn survives(self, bytes: usize, chance: &mut Chance<'_>) -> usize {
        if chance.below(8) < self.kept {
            bytes
        } else if chance.below(8) < self.torn {
            chance.below(bytes)
        } else {
            0
        }
    }
}

impl SimDisk {
    /// Power fails and comes back. Of what was not synced each sector is kept, lost or torn, each
    /// by itself; of the names that were not synced, some changes are kept.
    /// `rng` is the state of the random numbers; it moves on.
    pub fn crash(&self, rng: &mut u64) {
        let mut state = self.state();
        let mut chance = Chance(rng);
        for inode in state.inodes.values_mut() {
            let mood = Mood::draw(&mut chance);
            inode.lose(mood, &mut chance);
        }
        state.lose_names(&mut chance);
        state.restart();
    }

    /// Power fails and comes back, on a disk that works strictly in order: the first `bytes` that
    /// were written and not synced are kept, with all else that was done before them.
    pub fn crash_after_bytes(&self, bytes: u64) {
        let mut state = self.state();
        let end = state.moment_of_byte(bytes);
        let mut left = bytes;
        for (moment, id) in state.moments().into_iter().take_while(|(moment, _)| *moment <= end) {
            let Some(inode) = state.inodes.get_mut(&id) else { continue };
            left -= inode.keep(moment, left);
        }
        let names = std::mem::take(&mut state.unsynced_names);
        for unsynced in names.iter().filter(|unsynced| unsynced.moment <= end) {
            unsynced.change.apply(&mut state.durable_names);
        }
        state.restart();
    }
}

impl Inode {
    fn lose(&mut self, mood: Mood, chance: &mut Chance<'_>) {
        for unsynced in std::mem::take(&mut self.unsynced) {
            let Change::Write { offset, bytes } = &unsynced.change else {
                if mood.survives(1, chance) > 0 {
                    unsynced.change.apply(&mut self.durable);
                }
                continue;
            };
            let mut done = 0;
            while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
                let start = offset + done;
                let sector = (SECTOR_BYTES - start % SECTOR_BYTES).min(rest.len());
                let kept = mood.survives(sector, chance);
                if kept > 0 {
                    put(&mut self.durable, start, rest.get(..kept).unwrap_or_default());
                }
                done += sector;
            }
        }
    }

    /// Makes the change of that moment durable, at most so many bytes of it; how many they were.
    fn keep(&mut self, moment: u64, bytes_max: u64) -> u64 {
        let Some(unsynced) = self.unsynced.iter().find(|unsynced| unsynced.moment == moment) else {
            return 0;
        };
        let kept = unsynced.change.bytes().min(bytes_max);
        match &unsynced.change {
            Change::Write { .. } if kept == 0 => {}
            Change::Write { offset, bytes } => {
                let kept = usize::try_from(kept).ok().and_then(|kept| bytes.get(..kept));
                put(&mut self.durable, *offset, kept.unwrap_or_default());
            }
            length => length.apply(&mut self.durable),
        }
        kept
    }
}

impl State {
    /// All unsynced changes of content, in order.
    fn moments(&self) -> Vec<(u64, u64)> {
        let mut moments: Vec<(u64, u64)> = Vec::new();
        for (id, inode) in &self.inodes {
            moments.extend(inode.unsynced.iter().map(|unsynced| (unsynced.moment, *id)));
        }
        moments.sort_unstable();
        moments
    }

    /// When the unsynced byte with this number was written.
    fn moment_of_byte(&self, byte: u64) -> u64 {
        let changes = self.inodes.values().flat_map(|inode| &inode.unsynced);
        let mut writes: Vec<(u64, u64)> =
            changes.map(|unsynced| (unsynced.moment, unsynced.change.bytes())).collect();
        writes.sort_unstable();
        let mut before = 0;
        for (moment, bytes) in writes {
            before += bytes;
            if before > byte {
                return moment;
            }
        }
        u64::MAX
    }

    /// A journal keeps the order of names, so mostly a prefix survives. Not every file system has
    /// one: sometimes any changes do, as long as none builds on a lost one.
    fn lose_names(&mut self, chance: &mut Chance<'_>) {
        let unsynced = std::mem::take(&mut self.unsynced_names);
        if chance.below(2) == 0 {
            let kept = chance.below(unsynced.len() + 1);
            for unsynced in unsynced.iter().take(kept) {
                unsynced.change.apply(&mut self.durable_names);
            }
            return;
        }
        keep_any(&unsynced, &mut self.durable_names, chance);
    }

    fn restart(&mut self) {
        for inode in self.inodes.values_mut() {
            inode.unsynced.clear();
            inode.seen.clone_from(&inode.durable);
        }
        self.unsynced_names.clear();
        self.names.clone_from(&self.durable_names);
        self.faults.power_off_after = None;
        self.boot += 1;
        self.locked = false;
        self.forget_nameless();
    }
}

fn keep_any(
    unsynced: &[Unsynced<NameChange>],
    durable: &mut BTreeMap<String, u64>,
    chance: &mut Chance<'_>,
) {
    let mut lost = BTreeSet::new();
    for Unsynced { change, .. } in unsynced {
        if change.names().iter().any(|name| lost.contains(*name)) || chance.below(2) == 0 {
            lost.extend(change.names().into_iter().map(str::to_owned));
        } else {
            change.apply(durable);
        }
    }
}
