//! The identity and other small files; the lock on the folder.

use crate::support::{crashed, damaged_file};
use holdfast_sim_disk::SimDisk;
use holdfast_storage::{
    Disk, Fault, FileKind, Identity, RealDisk, WriteError, claim, read_file, write_file,
};

const KIND: FileKind = FileKind { magic: *b"TESTFILE", version: 3 };
const ME: Identity = Identity { cluster: 0x1234_5678_9ABC_DEF0 << 64 | 77, node: 3 };

fn identity_is_stored_once<D: Disk>(disk: &D) {
    assert_eq!(Identity::load(disk), Ok(None));
    ME.store(disk).unwrap();
    assert_eq!(Identity::load(disk), Ok(Some(ME)));
    let other = Identity { node: 4, ..ME };
    assert!(matches!(other.store(disk), Err(WriteError::Misuse(_))));
    assert_eq!(Identity::load(disk), Ok(Some(ME)));
}

fn a_small_file_is_replaced_as_a_whole<D: Disk>(disk: &D) {
    assert_eq!(read_file(disk, "some", KIND), Ok(None));
    write_file(disk, "some", KIND, b"a longer content").unwrap();
    write_file(disk, "some", KIND, b"short").unwrap();
    assert_eq!(read_file(disk, "some", KIND), Ok(Some((3, b"short".to_vec()))));
    let older = FileKind { version: 2, ..KIND };
    let later = Fault::LaterVersion { file: "some".to_owned(), found: 3, known: 2 };
    assert_eq!(read_file(disk, "some", older), Err(later));
    let newer = FileKind { version: 4, ..KIND };
    assert_eq!(read_file(disk, "some", newer), Ok(Some((3, b"short".to_vec()))));
    let other = FileKind { magic: *b"OTHERONE", ..KIND };
    assert!(read_file(disk, "some", other).unwrap_err().is_damage());
}

fn a_folder_is_claimed_by_one<D: Disk>(disk: &D) {
    disk.create("left.tmp").unwrap();
    claim(disk).unwrap();
    assert!(!disk.list().unwrap().contains(&"left.tmp".to_owned()));
    let fault = claim(disk).unwrap_err();
    assert!(matches!(fault, Fault::InUse(_)) && !fault.is_damage(), "{fault}");
}

on_both_disks!(
    identity_is_stored_once,
    a_small_file_is_replaced_as_a_whole,
    a_folder_is_claimed_by_one,
);

#[test]
fn folder_lock_names_its_process_and_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep").join("down");
    let disk = RealDisk::open(&path).unwrap();
    claim(&disk).unwrap();
    let other = RealDisk::open(&path).unwrap();
    let refused = claim(&other).unwrap_err().to_string();
    assert!(refused.contains(&format!("in use by process {}", std::process::id())), "{refused}");
    let clone = disk.clone();
    drop(disk);
    assert!(claim(&other).is_err(), "a clone still has it");
    drop(clone);
    claim(&other).unwrap();
}

#[test]
fn crash_leaves_a_whole_identity_or_none() {
    for steps in 0.. {
        let disk = SimDisk::new();
        disk.inject(|faults| faults.power_off_after = Some(steps));
        let stored = ME.store(&disk).is_ok();
        for seed in 0..60 {
            let disk = crashed(&disk, steps << 8 | seed);
            claim(&disk).unwrap();
            let found = Identity::load(&disk).unwrap();
            assert!(found == Some(ME) || (found.is_none() && !stored), "{steps} {seed}");
        }
        if stored {
            assert_eq!(steps, 5);
            break;
        }
    }
}

#[test]
fn crash_leaves_the_old_or_the_new_content() {
    for steps in 0.. {
        let disk = SimDisk::new();
        write_file(&disk, "some", KIND, b"old").unwrap();
        disk.inject(|faults| faults.power_off_after = Some(steps));
        let written = write_file(&disk, "some", KIND, b"and this is new").is_ok();
        for seed in 0..60 {
            let disk = crashed(&disk, steps << 8 | seed);
            let (_, content) = read_file(&disk, "some", KIND).unwrap().unwrap();
            assert!(content == b"and this is new" || (content == b"old" && !written));
        }
        if written {
            break;
        }
    }
}

#[test]
fn damaged_identity_is_not_missing() {
    let disk = SimDisk::new();
    ME.store(&disk).unwrap();
    let length = disk.content("identity").unwrap().len();
    for offset in 0..length as u64 {
        for bit in 0..8 {
            let flipped = disk.fork();
            flipped.flip_bit("identity", offset, bit);
            let fault = Identity::load(&flipped).unwrap_err();
            assert_eq!(damaged_file(&fault), Some("identity"), "byte {offset} bit {bit}");
        }
    }
    let content = disk.content("identity").unwrap();
    for kept in 0..length {
        let file = disk.create("identity").unwrap();
        disk.write_at(&file, 0, &content[..kept]).unwrap();
        assert!(Identity::load(&disk).unwrap_err().is_damage(), "{kept} bytes");
    }
}

#[test]
fn full_disk_keeps_the_old_content() {
    let disk = SimDisk::new();
    write_file(&disk, "some", KIND, b"old").unwrap();
    disk.inject(|faults| faults.free_bytes = Some(20));
    let error = write_file(&disk, "some", KIND, b"new").unwrap_err();
    assert!(matches!(error, WriteError::Full { .. }), "{error}");
    assert_eq!(read_file(&disk, "some", KIND), Ok(Some((3, b"old".to_vec()))));
    disk.inject(|faults| faults.free_bytes = None);
    write_file(&disk, "some", KIND, b"new").unwrap();
}
