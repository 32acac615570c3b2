//! The disk flips a bit at rest. Either that is detected, or nothing is lost by it.

use crate::support::{Content, Subject, at, damaged_file, entries, entry, hard_state};
use holdfast_sim_disk::SimDisk;
use holdfast_storage::{Disk, RealDisk, inspect};

fn fill<D: Disk>(disk: &D) -> Subject<D> {
    let mut subject = Subject::open(disk).unwrap();
    subject.append(&entries(1, 5, 1, 450), Some(hard_state(1, 1, 0))).unwrap();
    subject.sync().unwrap();
    subject.append(&entries(4, 8, 2, 200), Some(hard_state(2, 0, 3))).unwrap();
    subject.compact(at(2, 1)).unwrap();
    subject.append(&[entry(9, 2, 77)], Some(hard_state(2, 3, 8))).unwrap();
    subject.sync().unwrap();
    subject
}

fn closed(disk: &SimDisk) -> Content {
    let subject = fill(disk);
    assert_eq!(subject.log.segments(), 2);
    subject.log.close().unwrap();
    subject.live
}

/// Every bit of every segment of a closed log, the free space included.
#[test]
fn any_bit_of_a_closed_log() {
    let disk = SimDisk::new();
    let expected = closed(&disk);
    let (mut found_out, mut harmless) = (0, 0);
    for name in disk.list().unwrap() {
        for offset in 0..disk.content(&name).unwrap().len() as u64 {
            for bit in 0..8 {
                let flipped = disk.fork();
                assert!(flipped.flip_bit(&name, offset, bit));
                match Subject::open(&flipped) {
                    Ok(subject) => {
                        assert_eq!(subject.live, expected, "{name} byte {offset} bit {bit}");
                        harmless += 1;
                    }
                    Err(fault) => {
                        let story = format!("{name} byte {offset} bit {bit}: {fault}");
                        assert_eq!(damaged_file(&fault), Some(name.as_str()), "{story}");
                        found_out += 1;
                    }
                }
            }
        }
    }
    // The records fill more than half of the segments.
    assert!(found_out > 4_000 * 8 && harmless > 0, "{found_out} {harmless}");
}

/// In a log that was not closed, a flipped bit in a record that is vouched for is always detected.
/// One in the last records, which can't be distinguished from torn ones, costs these and the ones
/// after, and nothing else.
#[test]
fn any_bit_of_a_log_that_was_not_closed() {
    let disk = SimDisk::new();
    let mut subject = fill(&disk);
    subject.append(&entries(10, 12, 2, 60), Some(hard_state(2, 3, 9))).unwrap();
    let possible = std::mem::take(&mut subject.possible);
    subject.sync().unwrap();
    let records = inspect(&disk).unwrap();
    let unvouched: Vec<_> = records.iter().filter(|record| !record.vouched).collect();
    assert_eq!(
        unvouched.iter().map(|record| record.what).collect::<Vec<_>>(),
        ["entry", "entry", "entry", "hard state"]
    );
    for record in &records {
        for offset in record.offset..record.offset + record.bytes {
            let flipped = disk.fork();
            assert!(flipped.flip_bit(&record.file, offset, offset as u8));
            match Subject::open(&flipped) {
                Ok(found) => {
                    assert!(!record.vouched, "{record:?} byte {offset}");
                    assert!(possible.contains(&found.live) && found.live != subject.live);
                }
                Err(fault) => assert!(record.vouched && fault.is_damage(), "{record:?}: {fault}"),
            }
        }
    }
}

/// A vouched record that is zeroed, or whose sector is, is detected too: a run of zeros is not the
/// end of the log if a later record says otherwise.
#[test]
fn zeros_in_the_middle_of_a_closed_log() {
    let disk = SimDisk::new();
    let expected = closed(&disk);
    let records = inspect(&disk).unwrap();
    let last = records.last().unwrap().clone();
    for record in &records {
        let holed = disk.fork();
        let file = holed.open(&record.file).unwrap();
        holed.write_at(&file, record.offset, &vec![0; record.bytes as usize]).unwrap();
        match Subject::open(&holed) {
            Ok(found) => assert_eq!((record, found.live), (&last, expected.clone())),
            Err(fault) => assert!(fault.is_damage(), "{record:?}: {fault}"),
        }
    }
}

#[test]
fn any_byte_of_a_closed_log_on_a_real_disk() {
    let folder = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(folder.path()).unwrap();
    let subject = fill(&disk);
    subject.log.close().unwrap();
    let records = inspect(&disk).unwrap();
    let (last, vouched) = records.split_last().unwrap();
    assert_eq!(last.what, "synced");
    for record in vouched {
        let file = disk.open(&record.file).unwrap();
        for offset in (record.offset..record.offset + record.bytes).step_by(7) {
            let mut byte = [0];
            disk.read_at(&file, offset, &mut byte).unwrap();
            disk.write_at(&file, offset, &[byte[0] ^ 1 << (offset % 8)]).unwrap();
            let fault = crate::support::open(&disk).unwrap_err();
            assert!(fault.is_damage(), "{record:?} byte {offset}: {fault}");
            disk.write_at(&file, offset, &byte).unwrap();
        }
    }
    assert_eq!(Subject::open(&disk).unwrap().live, subject.live);
}
