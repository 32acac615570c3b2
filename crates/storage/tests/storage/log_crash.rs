//! Power fails at every point. Afterwards everything that was synced is there; what was not is
//! there in order or not at all.

use crate::support::{Subject, at, check, crashed, entries, entry, hard_state};
use holdfast_sim_disk::SimDisk;
use holdfast_storage::{Disk, Fault, LogEntry, WriteError, inspect};

/// The error of a script step, which is always the loss of power.
#[derive(Debug)]
struct Off;

impl From<Fault> for Off {
    fn from(_: Fault) -> Self {
        Self
    }
}

impl From<WriteError> for Off {
    fn from(_: WriteError) -> Self {
        Self
    }
}

type Step = fn(&mut Subject<SimDisk>) -> Result<(), Off>;

/// Appends of every kind, with syncs between some of them, over several segments.
const SCRIPT: &[Step] = &[
    |s| Ok(s.append(&[entry(1, 1, 30)], Some(hard_state(1, 1, 0)))?),
    |s| Ok(s.sync()?),
    |s| Ok(s.append(&entries(2, 4, 1, 90), None)?),
    |s| Ok(s.append(&[], Some(hard_state(2, 3, 1)))?),
    |s| Ok(s.append(&[entry(5, 2, 700)], Some(hard_state(2, 3, 4)))?),
    |s| Ok(s.sync()?),
    |s| Ok(s.vouch()?),
    |s| Ok(s.append(&entries(6, 7, 2, 400), None)?),
    |s| Ok(s.append(&entries(5, 6, 3, 333), Some(hard_state(3, 0, 4)))?),
    |s| Ok(s.sync()?),
    |s| Ok(s.append(&entries(7, 9, 3, 600), None)?),
    |s| Ok(s.append(&entries(10, 12, 3, 600), None)?),
    |s| Ok(s.sync()?),
    |s| Ok(s.append(&entries(13, 13, 3, 3_000), None)?),
    |s| Ok(s.append(&entries(14, 15, 3, 1), None)?),
    |s| Ok(s.compact(at(11, 3))?),
    |s| Ok(s.append(&entries(16, 18, 4, 1_000), Some(hard_state(4, 4, 15)))?),
    |s| Ok(s.compact(at(17, 4))?),
    |s| Ok(s.append(&entries(19, 19, 4, 10), None)?),
    |s| Ok(s.reset(at(40, 5))?),
    |s| Ok(s.append(&entries(41, 44, 5, 100), Some(hard_state(5, 0, 41)))?),
    |s| Ok(s.sync()?),
];

#[test]
fn at_every_byte_of_what_was_not_synced() {
    let disk = SimDisk::new();
    let mut subject = Subject::open(&disk).unwrap();
    let mut crashes = 0;
    for (place, step) in SCRIPT.iter().enumerate() {
        step(&mut subject).unwrap();
        for bytes in 0..=disk.unsynced_bytes() {
            let crashed = disk.fork();
            crashed.crash_after_bytes(bytes);
            subject.check(&crashed, &format!("step {place}, byte {bytes}"));
            crashes += 1;
        }
    }
    assert!(crashes > 8_000, "{crashes}");
}

/// A log recovered from a crash must be as good as any other: it is written to, and crashes again.
#[test]
fn at_every_tenth_byte_and_again_after_a_few_more_entries() {
    let disk = SimDisk::new();
    let mut subject = Subject::open(&disk).unwrap();
    for (place, step) in SCRIPT.iter().enumerate() {
        step(&mut subject).unwrap();
        for bytes in (0..=disk.unsynced_bytes()).step_by(10) {
            let story = format!("step {place}, byte {bytes}, again");
            let crashed = disk.fork();
            crashed.crash_after_bytes(bytes);
            let mut found = subject.check(&crashed, &story);
            let last = found.live.last_index();
            found
                .append(&entries(last + 1, last + 2, 9, 50), Some(hard_state(9, 0, last)))
                .unwrap();
            found.sync().unwrap();
            found.append(&[entry(last + 3, 9, 50)], None).unwrap();
            crashed.crash_after_bytes(bytes % 120);
            found.check(&crashed, &story);
        }
    }
}

fn run(disk: &SimDisk) -> (Option<Subject<SimDisk>>, bool) {
    let Ok(mut subject) = Subject::open(disk) else { return (None, false) };
    let done = SCRIPT.iter().all(|step| step(&mut subject).is_ok());
    (Some(subject), done)
}

/// The power fails after each change that the script makes to the disk; then unsynced sectors and
/// names are lost at random.
#[test]
fn after_every_change_to_the_disk() {
    for steps in 0.. {
        let disk = SimDisk::new();
        disk.inject(|faults| faults.power_off_after = Some(steps));
        let (subject, done) = run(&disk);
        let possible = subject.map_or_else(|| vec![Default::default()], |subject| subject.possible);
        for seed in 0..40 {
            let crashed = crashed(&disk, steps << 8 | seed);
            check(&possible, &crashed, &format!("{steps} steps, seed {seed}"));
        }
        if done {
            assert!(steps > 60, "{steps}");
            break;
        }
    }
}

/// Recovery is interrupted as well, after each of its own changes.
#[test]
fn while_the_log_is_being_opened_after_a_crash() {
    let mut interrupted = 0;
    for steps in 0..200 {
        let disk = SimDisk::new();
        disk.inject(|faults| faults.power_off_after = Some(steps));
        let (subject, done) = run(&disk);
        let possible = subject.map_or_else(|| vec![Default::default()], |subject| subject.possible);
        for seed in 0..6 {
            let mut rng = steps << 8 | seed;
            let crashed = crashed(&disk, rng);
            for more in 0.. {
                let again = crashed.fork();
                again.inject(|faults| faults.power_off_after = Some(more));
                let opened = Subject::open(&again).is_ok();
                again.crash(&mut rng);
                check(&possible, &again, &format!("{steps} steps, seed {seed}, then {more}"));
                interrupted += 1;
                if opened {
                    break;
                }
            }
        }
        if done {
            break;
        }
    }
    assert!(interrupted > 1_000, "{interrupted}");
}

/// Two records that were not synced reach the disk in reverse order: the first is lost, the second
/// is whole. The second states that the first was not synced, so both are dropped.
#[test]
fn with_two_unsynced_records_in_the_other_order() {
    let disk = SimDisk::new();
    let mut subject = Subject::open(&disk).unwrap();
    subject.append(&[entry(1, 1, 100)], None).unwrap();
    subject.sync().unwrap();
    let acknowledged = subject.live.clone();
    let name = disk.list().unwrap().pop().unwrap();
    let end = |content: &[u8]| content.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let before = disk.content(&name).unwrap();
    let first = end(&before).next_multiple_of(8);
    subject.append(&[entry(2, 1, 1_000)], None).unwrap();
    let second = end(&disk.content(&name).unwrap()).next_multiple_of(8);
    subject.append(&[entry(3, 1, 1_000)], None).unwrap();

    for lost in [first..second, first..first + 512, second - 512..second] {
        let crashed = disk.fork();
        let file = crashed.open(&name).unwrap();
        crashed.write_at(&file, lost.start as u64, &before[lost]).unwrap();
        crashed.sync(&file).unwrap();
        let (_, recovered) = crate::support::open(&crashed).unwrap();
        assert_eq!(crate::support::Content::from(&recovered), acknowledged);
        let cut = recovered.cut.expect("something was cut");
        assert_eq!((cut.file.as_str(), cut.offset), (name.as_str(), first as u64));
        // The valid record after the cut is gone for good.
        let (_, recovered) = crate::support::open(&crashed).unwrap();
        assert_eq!((recovered.cut, recovered.entries.len()), (None, 1));
    }

    // Once the two are synced, the same loss is damage.
    subject.sync().unwrap();
    subject.vouch().unwrap();
    let file = disk.open(&name).unwrap();
    disk.write_at(&file, first as u64, &before[first..second]).unwrap();
    let fault = crate::support::open(&disk).unwrap_err();
    assert_eq!(crate::support::damaged_file(&fault), Some(name.as_str()), "{fault}");
}

/// A client may put something into an entry that looks like a record that vouches for a lot. If a
/// crash tears that entry, the bytes must not pass for a record: the node would refuse to start.
#[test]
fn with_a_record_inside_a_torn_entry() {
    let elsewhere = SimDisk::new();
    let mut other = Subject::open(&elsewhere).unwrap();
    other.append(&entries(1, 20, 1, 8), None).unwrap();
    other.vouch().unwrap();
    let record = inspect(&elsewhere).unwrap().pop().unwrap();
    let range = record.offset as usize..(record.offset + record.bytes) as usize;
    let vouching = &elsewhere.content(&record.file).unwrap()[range];

    let disk = SimDisk::new();
    let mut subject = Subject::open(&disk).unwrap();
    subject.append(&[entry(1, 1, 8)], None).unwrap();
    subject.sync().unwrap();
    // At every alignment, and all over a longer entry.
    let content: Vec<u8> = (0..8).flat_map(|pad| [&vec![0; pad], vouching].concat()).collect();
    let name = disk.list().unwrap().pop().unwrap();
    let start = inspect(&disk).unwrap().pop().map(|last| last.offset + last.bytes).unwrap();
    subject.append(&[LogEntry::batch(2, 1, &content.repeat(3))], None).unwrap();
    disk.write_at(&disk.open(&name).unwrap(), start, &[0; 16]).unwrap();
    let found = subject.check(&disk, "torn");
    assert_eq!(found.live.last_index(), 1);
}

/// The power fails after the snapshot's position is on disk and before the segments are deleted.
/// The next open deletes them, whatever the indexes of their entries.
#[test]
fn before_the_old_segments_are_deleted() {
    for reset in [true, false] {
        let disk = SimDisk::new();
        let mut subject = Subject::open(&disk).unwrap();
        for index in 1..=30 {
            subject.append(&[entry(index, 1, 500)], None).unwrap();
        }
        subject.sync().unwrap();
        disk.inject(|faults| faults.power_off_after = Some(2));
        let stopped = if reset { subject.reset(at(3, 2)) } else { subject.compact(at(29, 1)) };
        assert!(stopped.is_err());
        disk.crash(&mut 1);
        assert!(disk.list().unwrap().len() > 3);
        let found = subject.check(&disk, "not deleted");
        assert_eq!((found.log.segments(), disk.list().unwrap().len()), (1, 1));
        assert_eq!(found.live.last_index(), if reset { 3 } else { 30 });
    }
}
