//! A snapshot is either complete or absent, and a damaged one is never read.

use crate::support::{at, crashed, damaged_file};
use holdfast_sim_disk::SimDisk;
use holdfast_storage::{
    Disk, Fault, PIECE_BYTES_MAX, SnapshotReader, SnapshotWriter, WriteError, claim, open_latest,
};

const META: &[u8] = b"members 1 2 3";

fn piece(index: u64, number: u64) -> Vec<u8> {
    let length = 40 + 13 * number as usize;
    (0..length).map(|place| (index + number) as u8 ^ place as u8).collect()
}

fn write<D: Disk>(disk: &D, index: u64, pieces: u64) -> Result<(), WriteError> {
    let mut writer = SnapshotWriter::begin(disk, at(index, 7), META)?;
    for number in 0..pieces {
        if let Err(error) = writer.piece(number, &piece(index, number)) {
            // This fails too without power.
            let _ = writer.abandon();
            return Err(error);
        }
    }
    writer.finish()
}

fn assert_is<D: Disk>(reader: &SnapshotReader<D>, index: u64, pieces: u64) {
    assert_eq!((reader.position(), reader.meta()), (at(index, 7), META));
    assert_eq!(reader.pieces_len(), pieces);
    let found: Vec<Vec<u8>> = reader.pieces().map(|piece| piece.unwrap()).collect();
    let expected: Vec<Vec<u8>> = (0..pieces).map(|number| piece(index, number)).collect();
    assert_eq!(found, expected);
    assert_eq!(reader.pieces_bytes(), found.iter().map(|piece| piece.len() as u64).sum::<u64>());
    assert_eq!(reader.piece(pieces).unwrap(), None);
}

fn latest<D: Disk>(disk: &D) -> SnapshotReader<D> {
    open_latest(disk).unwrap().expect("there is a snapshot")
}

fn the_newest_snapshot_is_read_and_older_ones_go<D: Disk>(disk: &D) {
    assert!(open_latest(disk).unwrap().is_none());
    write(disk, 10, 3).unwrap();
    let first = latest(disk);
    assert_is(&first, 10, 3);
    write(disk, 25, 0).unwrap();
    assert_is(&latest(disk), 25, 0);
    assert_eq!(disk.list().unwrap(), ["snapshot-00000000000000000025"]);
    // A reader of the old one, who is sending it to another node, is not disturbed.
    assert_is(&first, 10, 3);
}

fn an_own_snapshot_that_is_late_does_not_replace_a_newer_one<D: Disk>(disk: &D) {
    let mut own = SnapshotWriter::begin(disk, at(10, 7), META).unwrap();
    own.piece(0, b"own").unwrap();
    write(disk, 50, 2).unwrap();
    own.finish().unwrap();
    assert_is(&latest(disk), 50, 2);
    assert_eq!(disk.list().unwrap().len(), 1);
}

fn a_snapshot_is_sent_piece_by_piece<D: Disk>(disk: &D) {
    write(disk, 10, 5).unwrap();
    let sender = latest(disk);
    let receiver = SimDisk::new();
    let mut writer = SnapshotWriter::begin(&receiver, sender.position(), sender.meta()).unwrap();
    for number in [0, 1, 1, 3, 0, 2, 3, 4, 4] {
        let wanted = writer.next_piece() == number;
        let bytes = sender.piece(number).unwrap().unwrap();
        let taken = writer.piece(number, &bytes);
        assert_eq!(taken.is_ok(), wanted, "piece {number}");
        assert!(wanted || matches!(taken, Err(WriteError::Misuse(_))));
    }
    assert_eq!(writer.checksum(), sender.checksum());
    writer.finish().unwrap();
    assert_is(&latest(&receiver), 10, 5);
    assert_eq!(latest(&receiver).checksum(), sender.checksum());
}

fn an_abandoned_one_leaves_nothing<D: Disk>(disk: &D) {
    let writer = SnapshotWriter::begin(disk, at(10, 7), META).unwrap();
    writer.abandon().unwrap();
    assert!(disk.list().unwrap().is_empty());
}

fn a_half_written_one_is_ignored_and_goes_at_the_next_start<D: Disk>(disk: &D) {
    write(disk, 10, 3).unwrap();
    let mut writer = SnapshotWriter::begin(disk, at(20, 7), META).unwrap();
    writer.piece(0, b"half").unwrap();
    assert_is(&latest(disk), 10, 3);
    claim(disk).unwrap();
    assert!(disk.list().unwrap().iter().all(|name| !name.ends_with(".tmp")));
    assert_is(&latest(disk), 10, 3);
}

fn a_piece_that_is_too_long_is_refused<D: Disk>(disk: &D) {
    let mut writer = SnapshotWriter::begin(disk, at(10, 7), META).unwrap();
    let long = vec![0; PIECE_BYTES_MAX + 1];
    assert!(matches!(writer.piece(0, &long), Err(WriteError::Misuse(_))));
    writer.piece(0, &long[1..]).unwrap();
    writer.finish().unwrap();
    assert_eq!(latest(disk).piece(0).unwrap().unwrap().len(), PIECE_BYTES_MAX);
}

on_both_disks!(
    the_newest_snapshot_is_read_and_older_ones_go,
    an_own_snapshot_that_is_late_does_not_replace_a_newer_one,
    a_snapshot_is_sent_piece_by_piece,
    an_abandoned_one_leaves_nothing,
    a_half_written_one_is_ignored_and_goes_at_the_next_start,
    a_piece_that_is_too_long_is_refused,
);

/// After a loss of power at any point, either the old one or the new one is there; once the new one
/// was reported as written, it is there.
#[test]
fn crash_after_every_change_leaves_the_old_or_the_new_snapshot() {
    for steps in 0.. {
        let disk = SimDisk::new();
        write(&disk, 10, 3).unwrap();
        disk.inject(|faults| faults.power_off_after = Some(steps));
        let finished = write(&disk, 20, 4).is_ok();
        let mut newer = 0;
        for seed in 0..60 {
            let disk = crashed(&disk, steps << 8 | seed);
            claim(&disk).unwrap();
            let reader = latest(&disk);
            let new = reader.position().index == 20;
            assert_is(&reader, if new { 20 } else { 10 }, if new { 4 } else { 3 });
            newer += u32::from(new);
        }
        if finished {
            assert_eq!(newer, 60, "{steps}");
            break;
        }
    }
}

#[test]
fn crash_at_every_byte_leaves_the_old_snapshot() {
    let disk = SimDisk::new();
    write(&disk, 10, 3).unwrap();
    let mut writer = SnapshotWriter::begin(&disk, at(20, 7), META).unwrap();
    for number in 0..4 {
        writer.piece(number, &piece(20, number)).unwrap();
    }
    for bytes in 0..=disk.unsynced_bytes() {
        let disk = disk.fork();
        disk.crash_after_bytes(bytes);
        claim(&disk).unwrap();
        assert_is(&latest(&disk), 10, 3);
        assert_eq!(disk.list().unwrap().len(), 1);
        // And the same snapshot can be written again over what was left.
        write(&disk, 20, 4).unwrap();
        assert_is(&latest(&disk), 20, 4);
    }
}

#[test]
fn every_bit_flip_in_a_snapshot_is_detected() {
    let disk = SimDisk::new();
    write(&disk, 10, 4).unwrap();
    let name = disk.list().unwrap().pop().unwrap();
    for offset in 0..disk.content(&name).unwrap().len() as u64 {
        for bit in 0..8 {
            let flipped = disk.fork();
            assert!(flipped.flip_bit(&name, offset, bit));
            let fault = open_latest(&flipped).unwrap_err();
            assert_eq!(damaged_file(&fault), Some(name.as_str()), "byte {offset} bit {bit}");
        }
    }
    assert_is(&latest(&disk), 10, 4);
}

#[test]
fn wrong_length_is_detected() {
    let disk = SimDisk::new();
    write(&disk, 10, 4).unwrap();
    let name = disk.list().unwrap().pop().unwrap();
    let content = disk.content(&name).unwrap();
    for length in 0..content.len() {
        let file = disk.create(&name).unwrap();
        disk.write_at(&file, 0, &content[..length]).unwrap();
        assert!(open_latest(&disk).unwrap_err().is_damage(), "{length} bytes");
    }
    let file = disk.open(&name).unwrap();
    disk.write_at(&file, 0, &[&content[..], &[0]].concat()).unwrap();
    assert!(open_latest(&disk).unwrap_err().is_damage(), "one byte more");
}

/// The log may have been compacted up to the newest one, so an older one does not help.
#[test]
fn damaged_newest_snapshot_is_a_fault_despite_an_older_one() {
    let disk = SimDisk::new();
    write(&disk, 10, 3).unwrap();
    let old = disk.content("snapshot-00000000000000000010").unwrap();
    write(&disk, 20, 3).unwrap();
    let file = disk.create("snapshot-00000000000000000010").unwrap();
    disk.write_at(&file, 0, &old).unwrap();
    assert_is(&latest(&disk), 20, 3);
    disk.flip_bit("snapshot-00000000000000000020", 60, 0);
    assert!(open_latest(&disk).unwrap_err().is_damage());
}

#[test]
fn renamed_snapshot_is_detected() {
    let disk = SimDisk::new();
    write(&disk, 10, 3).unwrap();
    disk.rename("snapshot-00000000000000000010", "snapshot-00000000000000000011").unwrap();
    assert!(open_latest(&disk).unwrap_err().is_damage());
}

#[test]
fn full_disk_costs_only_the_new_snapshot() {
    let disk = SimDisk::new();
    write(&disk, 10, 3).unwrap();
    for free in 0..600 {
        disk.inject(|faults| faults.free_bytes = Some(free));
        match write(&disk, 20, 4) {
            Ok(()) => return assert!(free > 300, "{free}"),
            Err(error) => assert!(matches!(error, WriteError::Full { .. }), "{error}"),
        }
        disk.inject(|faults| faults.free_bytes = None);
        assert_is(&latest(&disk), 10, 3);
    }
    panic!("it never fitted");
}

#[test]
fn failed_sync_is_a_fault_and_leaves_the_old_or_the_new_snapshot() {
    for after in 0..2 {
        let disk = SimDisk::new();
        write(&disk, 10, 3).unwrap();
        disk.inject(|faults| faults.sync_error_after = Some(after));
        let error = write(&disk, 20, 4).unwrap_err();
        assert!(matches!(error, WriteError::Fault(Fault::SyncFailed { .. })), "{error}");
        for seed in 0..20 {
            let disk = crashed(&disk, seed);
            let new = latest(&disk).position().index == 20;
            assert_is(&latest(&disk), if new { 20 } else { 10 }, if new { 4 } else { 3 });
        }
    }
}

/// A long snapshot is synced along the way, so that no single sync delays the log's for long.
#[test]
fn long_snapshot_is_synced_while_written() {
    let disk = SimDisk::new();
    let mut writer = SnapshotWriter::begin(&disk, at(10, 7), META).unwrap();
    for number in 0..40 {
        writer.piece(number, &vec![7; 1 << 20]).unwrap();
        assert!(disk.unsynced_bytes() <= 9 << 20);
    }
    writer.finish().unwrap();
    assert_eq!(latest(&disk).pieces_bytes(), 40 << 20);
}
