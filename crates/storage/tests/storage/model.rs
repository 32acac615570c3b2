//! Random lives of a log, with crashes, restarts and faults, checked against a naive model.

use crate::support::{Subject, at, entry, hard_state};
use holdfast_sim_disk::{SimDisk, SimFaults};
use holdfast_storage::{Disk, RealDisk, WriteError};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Act {
    /// Appends `entries` entries of that length, starting `back` before the end.
    Append {
        entries: u64,
        back: u64,
        length: usize,
        with_hard_state: bool,
    },
    HardState {
        vote: u64,
    },
    Sync,
    Vouch,
    /// A snapshot `back` entries before the end.
    Compact {
        back: u64,
    },
    /// A snapshot from another node, `ahead` entries after the end.
    Reset {
        ahead: u64,
    },
    /// The power fails.
    Crash {
        seed: u64,
    },
    /// The process ends, with or without closing the log.
    Restart {
        closed: bool,
    },
    /// Writes stop half-way after this many bytes, until the next act has been tried.
    FullAfter {
        bytes: u64,
    },
    /// Only this much space is left for new segments, until the next act has been tried.
    Free {
        bytes: u64,
    },
    /// A sync fails; then the process restarts, or the power fails too.
    FailedSync {
        seed: Option<u64>,
    },
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (1..5u64, prop_oneof![3 => Just(0), 1 => 0..6u64], lengths(), any::<bool>()).prop_map(
            |(entries, back, length, with_hard_state)| Act::Append {
                entries, back, length, with_hard_state
            }
        ),
        2 => (0..4u64).prop_map(|vote| Act::HardState { vote }),
        5 => Just(Act::Sync),
        2 => Just(Act::Vouch),
        2 => (0..8u64).prop_map(|back| Act::Compact { back }),
        1 => (0..9u64).prop_map(|ahead| Act::Reset { ahead }),
        3 => any::<u64>().prop_map(|seed| Act::Crash { seed }),
        2 => any::<bool>().prop_map(|closed| Act::Restart { closed }),
        1 => (0..2_000u64).prop_map(|bytes| Act::FullAfter { bytes }),
        1 => (0..5_000u64).prop_map(|bytes| Act::Free { bytes }),
        1 => any::<Option<u64>>().prop_map(|seed| Act::FailedSync { seed }),
    ]
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..100usize, 2 => 400..700usize, 1 => 2_000..6_000usize]
}

/// A log, its model, and the term of the next entries.
struct World<D: Disk> {
    disk: D,
    subject: Subject<D>,
    term: u64,
}

impl<D: Disk> World<D> {
    fn new(disk: D) -> Self {
        let subject = Subject::open(&disk).unwrap();
        Self { disk, subject, term: 1 }
    }

    /// Does whatever a log can do on any disk; returns false if the act is something else.
    fn act(&mut self, act: &Act) -> Result<bool, WriteError> {
        let (last, compacted) = (self.subject.live.last_index(), self.subject.live.compacted.index);
        match *act {
            Act::Append { entries, back, length, with_hard_state } => {
                let first = (last + 1).saturating_sub(back).max(compacted + 1);
                // What is replaced gets another term, as in Raft.
                self.term += u64::from(first <= last);
                let batch: Vec<_> =
                    (first..first + entries).map(|index| entry(index, self.term, length)).collect();
                let state = with_hard_state.then(|| hard_state(self.term, 0, compacted));
                self.subject.append(&batch, state)?;
            }
            Act::HardState { vote } => {
                self.term += 1;
                self.subject.append(&[], Some(hard_state(self.term, vote, compacted)))?;
            }
            Act::Sync => self.subject.sync()?,
            Act::Vouch => self.subject.vouch()?,
            Act::Compact { back } => {
                let index = last.saturating_sub(back).max(compacted);
                let term = self.subject.live.term_at(index);
                self.subject.compact(at(index, term))?;
            }
            Act::Reset { ahead } => {
                self.term += 1;
                self.subject.reset(at(last + ahead, self.term))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn restart(&mut self, closed: bool) {
        if closed {
            self.subject.vouch().unwrap();
        }
        let found = Subject::open(&self.disk).unwrap();
        assert!(self.subject.possible.contains(&found.live));
        assert!(!closed || found.live == self.subject.live);
        self.subject = found;
    }
}

impl World<SimDisk> {
    fn crash(&mut self, seed: u64) {
        self.disk.crash(&mut { seed });
        self.subject = self.subject.check(&self.disk, "crash");
    }

    fn fail_sync(&mut self, seed: Option<u64>) {
        self.disk.inject(|faults| faults.sync_error_after = Some(0));
        self.term += 1;
        let state = hard_state(self.term, 1, 0);
        let failed = self.subject.append(&[], Some(state)).is_err() || self.subject.sync().is_err();
        assert!(failed);
        match seed {
            Some(seed) => self.crash(seed),
            None => {
                self.disk.end_process();
                self.subject = self.subject.check(&self.disk, "restart after a failed sync");
            }
        }
    }

    /// Returns whether writes are obstructed while the next act is tried.
    fn mishap(&mut self, act: &Act) -> bool {
        match *act {
            Act::Crash { seed } => self.crash(seed),
            Act::Restart { closed } => self.restart(closed),
            Act::FullAfter { bytes } => {
                self.disk.inject(|faults| faults.write_full_after_bytes = Some(bytes));
                return true;
            }
            Act::Free { bytes } => {
                self.disk.inject(|faults| faults.free_bytes = Some(bytes));
                return true;
            }
            Act::FailedSync { seed } => self.fail_sync(seed),
            _ => unreachable!("a log can do that"),
        }
        false
    }
}

fn live(acts: &[Act]) {
    let mut world = World::new(SimDisk::new());
    let mut hindered = false;
    for act in acts {
        let mishap = matches!(
            act,
            Act::Crash { .. }
                | Act::Restart { .. }
                | Act::FullAfter { .. }
                | Act::Free { .. }
                | Act::FailedSync { .. }
        );
        if mishap {
            world.disk.inject(|faults| *faults = SimFaults::default());
            hindered = world.mishap(act);
            continue;
        }
        match world.act(act) {
            Ok(done) => assert!(done),
            Err(WriteError::Full { .. }) if hindered => {}
            Err(error) => panic!("{act:?}: {error}"),
        }
        world.disk.inject(|faults| *faults = SimFaults::default());
        hindered = false;
    }
    world.disk.inject(|faults| *faults = SimFaults::default());
    world.crash(acts.len() as u64);
}

/// A batch fits in part, and then there is no room even to erase that part: a sync works, and still
/// some of the batch may be found after a crash, which the model once did not expect. After a sync
/// that has room it must be gone.
#[test]
fn leftovers_of_a_failed_append_are_gone_after_a_sync() {
    let append = |entries, length| Act::Append { entries, back: 0, length, with_hard_state: false };
    let full = |bytes| Act::FullAfter { bytes };
    for bytes in 0..1_500 {
        let fails = [append(3, 512), Act::Sync, full(bytes), append(2, 72), full(0), Act::Sync];
        for seed in 0..8 {
            let crash = Act::Crash { seed };
            live(&[&fails[..], std::slice::from_ref(&crash)].concat());
            live(&[&fails[..], &[Act::Sync, crash]].concat());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn log_keeps_what_it_acknowledged(acts in prop::collection::vec(acts(), 1..60)) {
        live(&acts);
    }
}

proptest! {
    // Each sync takes time on a real disk.
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..Default::default() })]

    #[test]
    fn log_keeps_everything_on_a_real_disk(acts in prop::collection::vec(acts(), 1..40)) {
        let folder = tempfile::tempdir().unwrap();
        let mut world = World::new(RealDisk::open(folder.path()).unwrap());
        for act in &acts {
            match act {
                Act::Restart { closed } => world.restart(*closed),
                act => {
                    world.act(act).unwrap();
                }
            }
        }
    }
}
