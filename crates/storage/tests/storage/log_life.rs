//! The life of a log without failures, and what it refuses, on both kinds of disk.

use crate::support::{
    Content, Subject, at, damaged_file, entries, entry, hard_state, open, options,
};
use holdfast_storage::{Disk, Fault, Log, Options, RealDisk, Recovered, WriteError, inspect};

fn log_files<D: Disk>(disk: &D) -> Vec<String> {
    let mut names = disk.list().unwrap();
    names.retain(|name| name.starts_with("log-"));
    names.sort();
    names
}

fn read<D: Disk>(disk: &D, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    disk.read_all(&disk.open(name).unwrap(), &mut bytes).unwrap();
    bytes
}

fn overwrite<D: Disk>(disk: &D, name: &str, offset: u64, bytes: &[u8]) {
    disk.write_at(&disk.open(name).unwrap(), offset, bytes).unwrap();
}

fn reopened<D: Disk>(disk: &D, subject: Subject<D>) -> Subject<D> {
    let Subject { log, live, .. } = subject;
    log.close().unwrap();
    let found = Subject::open(disk).unwrap();
    assert_eq!(found.live, live);
    found
}

fn what_was_synced_is_there_after_a_reopen<D: Disk>(disk: &D) {
    let mut subject = Subject::open(disk).unwrap();
    assert_eq!(subject.live, Content::default());
    subject.append(&entries(1, 3, 1, 100), Some(hard_state(1, 7, 2))).unwrap();
    subject.sync().unwrap();
    subject.append(&[], Some(hard_state(2, 0, 2))).unwrap();
    subject.sync().unwrap();
    // Not closed: as if the process had been killed.
    let found = Subject::open(disk).unwrap();
    assert_eq!(found.live, subject.live);
    reopened(disk, found);
}

fn an_empty_entry_and_an_empty_append_are_fine<D: Disk>(disk: &D) {
    let mut subject = Subject::open(disk).unwrap();
    subject.append(&[], None).unwrap();
    assert!(subject.log.is_synced());
    subject.append(&[entry(1, 1, 0)], None).unwrap();
    subject.sync().unwrap();
    reopened(disk, subject);
}

fn a_log_goes_over_to_new_segments<D: Disk>(disk: &D) {
    let mut subject = Subject::open(disk).unwrap();
    for index in 1..=30 {
        subject.append(&[entry(index, 1, 500)], Some(hard_state(1, 0, index))).unwrap();
    }
    subject.sync().unwrap();
    assert_eq!(log_files(disk).len(), subject.log.segments());
    assert!(subject.log.segments() >= 5);
    let mut subject = reopened(disk, subject);
    subject.append(&entries(31, 40, 2, 500), None).unwrap();
    subject.sync().unwrap();
    reopened(disk, subject);
}

fn a_batch_longer_than_a_segment_gets_a_longer_one<D: Disk>(disk: &D) {
    let mut subject = Subject::open(disk).unwrap();
    subject.append(&entries(1, 4, 1, 5_000), Some(hard_state(1, 1, 0))).unwrap();
    subject.sync().unwrap();
    assert_eq!(subject.log.segments(), 2);
    subject.append(&[entry(5, 1, 3_500)], None).unwrap();
    subject.sync().unwrap();
    assert_eq!(subject.log.segments(), 3);
    reopened(disk, subject);
}

fn an_entry_replaces_what_stood_there_and_behind<D: Disk>(disk: &D) {
    let mut subject = Subject::open(disk).unwrap();
    subject.append(&entries(1, 20, 1, 300), None).unwrap();
    subject.sync().unwrap();
    // Across segments, and more than once.
    subject.append(&entries(4, 9, 2, 300), None).unwrap();
    subject.append(&entries(2, 3, 3, 300), None).unwrap();
    subject.sync().unwrap();
    assert_eq!(subject.live.last_index(), 3);
    let mut subject = reopened(disk, subject);
    subject.append(&entries(1, 1, 4, 10), None).unwrap();
    subject.sync().unwrap();
    reopened(disk, subject);
}

fn a_compaction_deletes_what_the_snapshot_has<D: Disk>(disk: &D) {
    let mut subject = Subject::open(disk).unwrap();
    for index in 1..=40 {
        subject.append(&[entry(index, 1, 500)], Some(hard_state(1, 3, index))).unwrap();
    }
    subject.sync().unwrap();
    let before = log_files(disk);
    subject.compact(at(25, 1)).unwrap();
    let after = log_files(disk);
    assert!(after.len() < before.len() && after.len() == subject.log.segments());
    let mut subject = reopened(disk, subject);
    // Everything, and then the same again.
    subject.compact(at(40, 1)).unwrap();
    subject.compact(at(40, 1)).unwrap();
    assert_eq!((log_files(disk).len(), subject.live.entries.len()), (1, 0));
    let mut subject = reopened(disk, subject);
    assert_eq!(subject.live.hard_state, hard_state(1, 3, 40));
    subject.append(&entries(41, 42, 2, 20), None).unwrap();
    subject.sync().unwrap();
    reopened(disk, subject);
}

/// Segment 1 has entries 1 to 6; segment 2 replaces 4 to 6. When a snapshot includes 5 entries, the
/// first segment could be deleted as far as the log's content is concerned, but not by its highest
/// index.
fn a_compaction_in_replaced_entries_keeps_the_log_whole<D: Disk>(disk: &D) {
    let mut subject = Subject::open(disk).unwrap();
    subject.append(&entries(1, 6, 1, 400), None).unwrap();
    subject.append(&entries(4, 9, 2, 400), None).unwrap();
    subject.sync().unwrap();
    assert_eq!(subject.log.segments(), 2);
    subject.compact(at(5, 2)).unwrap();
    let mut subject = reopened(disk, subject);
    subject.compact(at(6, 2)).unwrap();
    assert_eq!(log_files(disk).len(), 1);
    reopened(disk, subject);
}

fn a_received_snapshot_replaces_everything<D: Disk>(disk: &D) {
    let mut subject = Subject::open(disk).unwrap();
    subject.append(&entries(1, 30, 1, 400), Some(hard_state(1, 2, 9))).unwrap();
    subject.append(&entries(31, 60, 1, 400), None).unwrap();
    subject.sync().unwrap();
    // After the end, then at an index that the log has, with another term.
    subject.reset(at(1_000, 5)).unwrap();
    assert_eq!(log_files(disk).len(), 1);
    let mut subject = reopened(disk, subject);
    for index in 1_001..=1_020 {
        subject.append(&[entry(index, 5, 500)], None).unwrap();
    }
    subject.reset(at(1_003, 6)).unwrap();
    assert_eq!(log_files(disk).len(), 1);
    let mut subject = reopened(disk, subject);
    assert_eq!(subject.live.last_index(), 1_003);
    subject.append(&entries(1_004, 1_004, 6, 10), None).unwrap();
    subject.sync().unwrap();
    reopened(disk, subject);
}

fn what_can_t_follow_is_refused_and_changes_nothing<D: Disk>(disk: &D) {
    let mut subject = Subject::open(disk).unwrap();
    subject.append(&entries(1, 5, 1, 10), None).unwrap();
    subject.compact(at(3, 1)).unwrap();
    let log = &mut subject.log;
    let gap = [entry(4, 1, 1), entry(6, 1, 1)];
    let back = [entry(5, 1, 1), entry(4, 1, 1)];
    for wrong in [&[entry(7, 1, 1)][..], &[entry(3, 1, 1)], &[entry(0, 1, 1)], &gap, &back] {
        assert!(matches!(log.append(wrong, None), Err(WriteError::Misuse(_))), "{wrong:?}");
    }
    assert!(matches!(log.compact(at(6, 1)), Err(WriteError::Misuse(_))));
    assert!(matches!(log.compact(at(2, 1)), Err(WriteError::Misuse(_))));
    assert!(matches!(log.reset(at(2, 1)), Err(WriteError::Misuse(_))));
    reopened(disk, subject);
}

fn a_log_that_must_be_there_and_is_not_is_damage<D: Disk>(disk: &D) {
    let must_exist = Options { must_exist: true, ..options() };
    let missing = Log::open(disk, must_exist.clone()).unwrap_err();
    assert!(missing.is_damage(), "{missing}");
    open(disk).unwrap().0.close().unwrap();
    Log::open(disk, must_exist).unwrap();
}

fn a_missing_segment_is_damage<D: Disk>(disk: &D) {
    let mut subject = Subject::open(disk).unwrap();
    for index in 1..=30 {
        subject.append(&[entry(index, 1, 500)], None).unwrap();
    }
    subject.log.close().unwrap();
    let names = log_files(disk);
    for (place, missing) in names.iter().enumerate().take(names.len() - 1) {
        disk.rename(missing, "elsewhere").unwrap();
        let fault = open(disk).unwrap_err();
        assert_eq!(damaged_file(&fault), Some(names[place].as_str()), "{fault}");
        disk.rename("elsewhere", missing).unwrap();
    }
    assert_eq!(Subject::open(disk).unwrap().live, subject.live);
}

fn a_segment_in_another_one_s_place_is_damage<D: Disk>(disk: &D) {
    let mut subject = Subject::open(disk).unwrap();
    for index in 1..=30 {
        subject.append(&[entry(index, 1, 500)], None).unwrap();
    }
    subject.log.close().unwrap();
    let names = log_files(disk);
    let (second, third) = (read(disk, &names[1]), read(disk, &names[2]));
    overwrite(disk, &names[1], 0, &third);
    overwrite(disk, &names[2], 0, &second);
    let fault = open(disk).unwrap_err();
    assert_eq!(damaged_file(&fault), Some(names[1].as_str()), "{fault}");
}

fn a_later_version_is_refused_clearly<D: Disk>(disk: &D) {
    let mut subject = Subject::open(disk).unwrap();
    subject.append(&entries(1, 3, 1, 10), None).unwrap();
    subject.log.close().unwrap();
    let name = &log_files(disk)[0];
    let mut preamble = read(disk, name)[..32].to_vec();
    preamble[8..12].copy_from_slice(&2u32.to_le_bytes());
    let crc = crc32fast::hash(&[&preamble[..12], &preamble[16..]].concat());
    preamble[12..16].copy_from_slice(&crc.to_le_bytes());
    overwrite(disk, name, 0, &preamble);
    let before = read(disk, name);
    let fault = open(disk).unwrap_err();
    let expected = Fault::LaterVersion { file: name.clone(), found: 2, known: 1 };
    assert_eq!(fault, expected);
    assert!(fault.to_string().contains("start the later program"), "{fault}");
    assert_eq!(read(disk, name), before, "nothing may be changed");
}

fn a_closed_log_vouches_for_all_that_it_holds<D: Disk>(disk: &D) {
    let mut subject = Subject::open(disk).unwrap();
    subject.append(&entries(1, 12, 1, 500), Some(hard_state(1, 1, 1))).unwrap();
    subject.sync().unwrap();
    let unvouched = |records: &[holdfast_storage::RecordInfo]| {
        records.iter().filter(|record| !record.vouched).map(|record| record.what).next()
    };
    assert_eq!(unvouched(&inspect(disk).unwrap()), Some("entry"));
    subject.log.vouch().unwrap();
    subject.log.vouch().unwrap();
    let records = inspect(disk).unwrap();
    assert_eq!(unvouched(&records), Some("synced"));
    assert_eq!(records.iter().filter(|record| record.what == "entry").count(), 12);
    assert_eq!(records.iter().filter(|record| record.what == "synced").count(), 1);
    let mut subject = reopened(disk, subject);
    // Neither closed nor vouched for: the next open does it.
    subject.append(&[entry(13, 1, 10)], None).unwrap();
    subject.sync().unwrap();
    drop(subject);
    drop(open(disk).unwrap());
    assert_eq!(unvouched(&inspect(disk).unwrap()), Some("synced"));
}

fn a_position_is_looked_up_in_what_was_found<D: Disk>(disk: &D) {
    let mut subject = Subject::open(disk).unwrap();
    subject.append(&entries(1, 5, 1, 10), Some(hard_state(1, 9, 0))).unwrap();
    subject.append(&entries(6, 8, 2, 10), None).unwrap();
    subject.compact(at(4, 1)).unwrap();
    drop(subject);
    let (_, recovered) = open(disk).unwrap();
    for there in [at(4, 1), at(5, 1), at(6, 2), at(8, 2)] {
        assert!(recovered.has(there), "{there:?}");
    }
    for absent in [at(3, 1), at(4, 2), at(6, 1), at(9, 2)] {
        assert!(!recovered.has(absent), "{absent:?}");
    }
    for enough in [Some(at(4, 1)), Some(at(7, 2)), Some(at(9, 3))] {
        assert_eq!(recovered.check_snapshot(enough), Ok(()));
    }
    for lost in [None, Some(at(3, 1)), Some(at(4, 2))] {
        assert!(recovered.check_snapshot(lost).unwrap_err().is_damage(), "{lost:?}");
    }
    assert_eq!(Recovered::default().check_snapshot(None), Ok(()));
    // There are entries of term 2, so that term was seen, and no vote was given in it.
    assert_eq!(recovered.settled_hard_state(), hard_state(2, 0, 0));
}

on_both_disks!(
    what_was_synced_is_there_after_a_reopen,
    an_empty_entry_and_an_empty_append_are_fine,
    a_log_goes_over_to_new_segments,
    a_batch_longer_than_a_segment_gets_a_longer_one,
    an_entry_replaces_what_stood_there_and_behind,
    a_compaction_deletes_what_the_snapshot_has,
    a_compaction_in_replaced_entries_keeps_the_log_whole,
    a_received_snapshot_replaces_everything,
    what_can_t_follow_is_refused_and_changes_nothing,
    a_log_that_must_be_there_and_is_not_is_damage,
    a_missing_segment_is_damage,
    a_segment_in_another_one_s_place_is_damage,
    a_later_version_is_refused_clearly,
    a_closed_log_vouches_for_all_that_it_holds,
    a_position_is_looked_up_in_what_was_found,
);

#[test]
fn log_can_be_sent_to_a_thread() {
    fn can_move<T: Send>() {}
    can_move::<Log<RealDisk>>();
    can_move::<Log<holdfast_sim_disk::SimDisk>>();
    can_move::<holdfast_storage::SnapshotWriter<RealDisk>>();
    can_move::<holdfast_storage::SnapshotReader<RealDisk>>();
}
