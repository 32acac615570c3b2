//! A full disk is waited out; a failed sync is final.

use crate::support::{Subject, at, check, crashed, entries, entry, hard_state, open};
use holdfast_sim_disk::SimDisk;
use holdfast_storage::{Disk, Fault, Log, WriteError, inspect};

fn is_full(result: Result<(), WriteError>) -> bool {
    matches!(result, Err(WriteError::Full { .. }))
}

/// A segment is preallocated, so the disk turns out to be full when the next one is created.
#[test]
fn append_works_again_after_a_full_disk() {
    let disk = SimDisk::new();
    let mut subject = Subject::open(&disk).unwrap();
    disk.inject(|faults| faults.free_bytes = Some(1_000));
    let mut index = 1;
    while subject.append(&[entry(index, 1, 300)], None).is_ok() {
        subject.sync().unwrap();
        index += 1;
    }
    let acknowledged = subject.live.clone();
    assert!(acknowledged.entries.len() >= 8);
    assert!(is_full(subject.append(&[entry(index, 1, 300)], Some(hard_state(7, 7, 7)))));
    assert_eq!(disk.list().unwrap().len(), 1, "no trace of the segment that found no room");
    // What fits into the old segment can still be written.
    subject.append(&[], Some(hard_state(2, 1, 3))).unwrap();
    subject.vouch().unwrap();

    disk.inject(|faults| faults.free_bytes = None);
    subject.append(&entries(index, index + 5, 2, 300), None).unwrap();
    subject.sync().unwrap();
    assert_eq!(subject.log.segments(), 2);
    disk.crash(&mut 5);
    subject.check(&disk, "after the disk was full");
}

/// There must be room for a snapshot's position on a full disk: it is what frees space.
#[test]
fn full_disk_still_allows_compaction() {
    let disk = SimDisk::new();
    let mut subject = Subject::open(&disk).unwrap();
    for index in 1..=20 {
        subject.append(&[entry(index, 1, 400)], None).unwrap();
    }
    subject.sync().unwrap();
    disk.inject(|faults| faults.free_bytes = Some(0));
    let mut index = 21;
    while subject.append(&[entry(index, 1, 8)], None).is_ok() {
        index += 1;
    }
    subject.vouch().unwrap();
    subject.compact(at(20, 1)).unwrap();
    subject.append(&entries(index, index + 3, 1, 400), None).unwrap();
    subject.sync().unwrap();
    disk.crash(&mut 5);
    subject.check(&disk, "compacted on a full disk");
}

/// On copy-on-write file systems even an allocated segment can turn out to be full, half-way
/// through a write. What was half-written never counts, whenever the crash comes.
#[test]
fn partial_write_is_undone() {
    for stops_after in 0..1_200 {
        let disk = SimDisk::new();
        let mut subject = Subject::open(&disk).unwrap();
        subject.append(&entries(1, 2, 1, 50), None).unwrap();
        subject.sync().unwrap();
        disk.inject(|faults| faults.write_full_after_bytes = Some(stops_after));
        let refused = is_full(subject.append(&entries(3, 8, 1, 60), Some(hard_state(1, 1, 1))));
        let story = format!("stopped after {stops_after} bytes");
        for seed in 0..4 {
            let crashed = crashed(&disk, stops_after << 4 | seed);
            subject.check(&crashed, &story);
        }
        disk.inject(|faults| faults.write_full_after_bytes = None);
        let last = subject.live.last_index();
        subject.append(&entries(last + 1, last + 1, 2, 40), None).unwrap();
        subject.sync().unwrap();
        let crashed = crashed(&disk, stops_after);
        let found = subject.check(&crashed, &story);
        assert_eq!(found.live.last_index(), if refused { 3 } else { 9 }, "{story}");
    }
}

/// A log where the append of entries 2 and 3 failed, and all but the last zero of them is in the
/// file; with the bytes of entry 3's record, and their offset.
fn with_a_failed_append(disk: &SimDisk) -> (Subject<SimDisk>, u64, Vec<u8>) {
    let mut subject = Subject::open(disk).unwrap();
    subject.append(&[entry(1, 1, 50)], None).unwrap();
    subject.sync().unwrap();
    disk.inject(|faults| faults.write_full_after_bytes = Some(2 * 160 - 1));
    assert!(is_full(subject.append(&entries(2, 3, 1, 99), None)));
    disk.inject(|faults| faults.write_full_after_bytes = None);
    let failed = inspect(disk).unwrap().pop().unwrap();
    assert_eq!((failed.what, failed.number), ("entry", 3));
    let range = failed.offset as usize..(failed.offset + failed.bytes) as usize;
    let record = disk.content(&failed.file).unwrap()[range].to_vec();
    (subject, failed.offset, record)
}

/// Another entry of the same length takes the place of the first of the two, and the zeros that
/// were to cover the second are lost in a crash: the second has the right location and the right
/// number, but follows the wrong record.
#[test]
fn record_of_a_failed_append_does_not_join_another() {
    let disk = SimDisk::new();
    let (mut subject, offset, second) = with_a_failed_append(&disk);
    subject.append(&[entry(2, 2, 99)], None).unwrap();
    subject.sync().unwrap();
    let name = disk.list().unwrap().pop().unwrap();
    disk.write_at(&disk.open(&name).unwrap(), offset, &second).unwrap();
    let found = subject.check(&disk, "the second record is back");
    assert_eq!(found.live.last_index(), 2);
}

/// Only the first of the two is appended again, unchanged: the second must not come along.
#[test]
fn record_of_a_failed_append_is_not_replayed_with_the_next() {
    let disk = SimDisk::new();
    let (mut subject, _, _) = with_a_failed_append(&disk);
    subject.append(&[entry(2, 1, 99)], None).unwrap();
    subject.sync().unwrap();
    let found = subject.check(&disk, "restart");
    assert_eq!(found.live.last_index(), 2);
}

/// The half-written append is followed by one that needs a new segment.
#[test]
fn partial_write_before_a_new_segment_is_undone() {
    for stops_after in (0..800).step_by(8) {
        let disk = SimDisk::new();
        let mut subject = Subject::open(&disk).unwrap();
        subject.append(&entries(1, 2, 1, 50), None).unwrap();
        subject.sync().unwrap();
        disk.inject(|faults| faults.write_full_after_bytes = Some(stops_after));
        assert!(is_full(subject.append(&entries(3, 8, 1, 60), None)));
        disk.inject(|faults| faults.write_full_after_bytes = None);
        subject.append(&[entry(3, 2, 5_000)], None).unwrap();
        assert_eq!(subject.log.segments(), 2);
        for seed in 0..4 {
            let crashed = crashed(&disk, stops_after << 4 | seed);
            subject.check(&crashed, &format!("{stops_after} bytes, unsynced"));
        }
        subject.sync().unwrap();
        let found = subject.check(&disk, &format!("{stops_after} bytes"));
        assert_eq!(found.live.last_index(), 3);
    }
}

/// A new segment that finds the disk full at any point of its creation leaves the log as it was.
#[test]
fn partially_created_segment_leaves_no_trace() {
    for stops_after in 0..=120 {
        let disk = SimDisk::new();
        let mut subject = Subject::open(&disk).unwrap();
        subject.append(&entries(1, 6, 1, 450), None).unwrap();
        subject.sync().unwrap();
        disk.inject(|faults| faults.write_full_after_bytes = Some(stops_after));
        assert!(is_full(subject.append(&[entry(7, 1, 900)], None)), "{stops_after}");
        disk.inject(|faults| faults.write_full_after_bytes = None);
        subject.append(&[entry(7, 1, 9)], None).unwrap();
        for seed in 0..4 {
            let crashed = crashed(&disk, stops_after << 4 | seed);
            subject.check(&crashed, &format!("{stops_after}"));
        }
        subject.append(&[entry(8, 1, 900)], None).unwrap();
        subject.sync().unwrap();
        disk.crash(&mut { stops_after });
        subject.check(&disk, &format!("{stops_after}, then"));
    }
}

#[test]
fn after_a_failed_sync_the_log_refuses_everything() {
    let disk = SimDisk::new();
    let mut subject = Subject::open(&disk).unwrap();
    subject.append(&[entry(1, 1, 10)], None).unwrap();
    subject.sync().unwrap();
    disk.inject(|faults| faults.sync_error_after = Some(0));
    subject.append(&[entry(2, 1, 10)], Some(hard_state(1, 1, 1))).unwrap();
    let syncs = disk.counts().syncs;
    let fault = subject.sync().unwrap_err();
    assert!(matches!(fault, Fault::SyncFailed { .. }) && !fault.is_damage(), "{fault}");
    // The next sync would report success: it is not tried.
    assert_eq!(subject.log.sync(), Err(fault.clone()));
    assert_eq!(subject.log.vouch(), Err(fault.clone()));
    assert_eq!(subject.log.append(&[entry(3, 1, 10)], None), Err(fault.clone().into()));
    assert_eq!(subject.log.compact(at(1, 1)), Err(fault.clone().into()));
    assert_eq!(subject.log.reset(at(9, 9)), Err(fault.clone().into()));
    assert_eq!(disk.counts().syncs, syncs + 1);

    // The power fails: what the failed sync was to save is gone, the rest is there.
    let crashed = crashed(&disk, 1);
    assert_eq!(subject.check(&crashed, "crash").live.last_index(), 1);
}

/// Linux considers what a failed sync could not write as written, and keeps showing it. A log that
/// is opened again by the next process must not rely on what it reads.
#[test]
fn data_read_after_a_failed_sync_is_made_durable_first() {
    let disk = SimDisk::new();
    let mut subject = Subject::open(&disk).unwrap();
    subject.append(&[entry(1, 1, 10)], None).unwrap();
    subject.sync().unwrap();
    disk.inject(|faults| faults.sync_error_after = Some(0));
    subject.append(&entries(2, 3, 1, 10), Some(hard_state(1, 1, 1))).unwrap();
    subject.sync().unwrap_err();
    disk.end_process();

    let found = subject.check(&disk, "restart");
    assert_eq!(found.live.last_index(), 3);
    disk.crash(&mut 1);
    found.check(&disk, "crash after the restart");
}

/// Any sync may be the one that fails: of an entry, of a new segment, of its name.
#[test]
fn any_failed_sync_is_fatal_and_loses_nothing() {
    let script = |subject: &mut Subject<SimDisk>| -> Result<(), WriteError> {
        for index in 1..=12 {
            subject.append(&[entry(index, 1, 700)], Some(hard_state(1, 0, index)))?;
            subject.sync()?;
            if index % 5 == 0 {
                subject.compact(at(index - 1, 1))?;
            }
        }
        Ok(subject.vouch()?)
    };
    for after in 0.. {
        let disk = SimDisk::new();
        let mut subject = Subject::open(&disk).unwrap();
        disk.inject(|faults| faults.sync_error_after = Some(after));
        let done = script(&mut subject).is_ok();
        for seed in 0..8 {
            let crashed = crashed(&disk, after << 4 | seed);
            subject.check(&crashed, &format!("sync {after}, power lost"));
            let restarted = disk.fork();
            restarted.end_process();
            restarted.inject(|faults| faults.sync_error_after = None);
            let found = subject.check(&restarted, &format!("sync {after}, restarted"));
            restarted.crash(&mut (after << 4 | seed));
            found.check(&restarted, &format!("sync {after}, restarted, power lost"));
        }
        if done {
            break;
        }
    }
}

#[test]
fn other_write_errors_are_fatal() {
    let disk = SimDisk::new();
    let mut subject = Subject::open(&disk).unwrap();
    disk.inject(|faults| faults.write_error_after_bytes = Some(20));
    let error = subject.append(&[entry(1, 1, 10)], None).unwrap_err();
    assert!(matches!(error, WriteError::Fault(Fault::Failed { .. })), "{error}");
    disk.inject(|faults| faults.write_error_after_bytes = None);
    assert_eq!(subject.append(&[entry(1, 1, 10)], None), Err(error));
    check(&subject.possible, &disk, "restart");
}

/// The cost of an append and its sync: one write, one sync, nothing else.
#[test]
fn batch_costs_one_write_and_one_sync() {
    let disk = SimDisk::new();
    let (mut log, _) = Log::open(&disk, crate::support::options()).unwrap();
    log.append(&[entry(1, 1, 1)], None).unwrap();
    log.sync().unwrap();
    let before = disk.counts();
    log.append(&entries(2, 9, 1, 10), Some(hard_state(1, 1, 1))).unwrap();
    log.sync().unwrap();
    log.sync().unwrap();
    let after = disk.counts();
    assert_eq!((after.writes - before.writes, after.syncs - before.syncs), (1, 1));
    assert_eq!(after.steps - before.steps, 2);
}

/// The very first segment's name is synced too: a log whose file vanishes has lost everything.
#[test]
fn first_segment_is_durable_once_the_log_is_open() {
    let disk = SimDisk::new();
    open(&disk).unwrap();
    for seed in 0..50 {
        let crashed = crashed(&disk, seed);
        assert_eq!(crashed.list().unwrap().len(), 1);
    }
}
