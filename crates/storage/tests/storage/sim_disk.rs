//! The simulated disk itself: it loses what it should, keeps what it must, and is repeatable.

use holdfast_sim_disk::SimDisk;
use holdfast_storage::Disk;

fn write(disk: &SimDisk, name: &str, offset: u64, bytes: &[u8]) {
    let file = disk.open(name).or_else(|_| disk.create(name)).unwrap();
    disk.write_at(&file, offset, bytes).unwrap();
}

fn after_crash(disk: &SimDisk, seed: u64) -> SimDisk {
    let disk = disk.fork();
    disk.crash(&mut { seed });
    disk
}

#[test]
fn synced_data_survives_every_crash() {
    let disk = SimDisk::new();
    write(&disk, "a", 0, b"synced");
    disk.sync(&disk.open("a").unwrap()).unwrap();
    disk.sync_dir().unwrap();
    write(&disk, "a", 6, b" and not");
    for seed in 0..100 {
        assert_eq!(after_crash(&disk, seed).content("a").unwrap()[..6], *b"synced");
    }
}

#[test]
fn unsynced_sectors_are_kept_lost_or_torn_individually() {
    let disk = SimDisk::new();
    write(&disk, "a", 0, &[0; 4 * 512]);
    disk.sync(&disk.open("a").unwrap()).unwrap();
    disk.sync_dir().unwrap();
    write(&disk, "a", 100, &[1; 3 * 512]);
    let mut kinds = std::collections::BTreeSet::new();
    for seed in 0..2_000 {
        let content = after_crash(&disk, seed).content("a").unwrap();
        let kind = |sector: usize| {
            let (start, end) = ((sector * 512).max(100), ((sector + 1) * 512).min(100 + 3 * 512));
            let kept = content[start..end].iter().filter(|byte| **byte == 1).count();
            assert!(content[start..start + kept].iter().all(|byte| *byte == 1), "torn at the end");
            if kept == 0 {
                'l'
            } else if kept == end - start {
                'k'
            } else {
                't'
            }
        };
        kinds.insert((0..4).map(kind).collect::<String>());
    }
    for wanted in ["kkkk", "llll", "lkkk", "kllk", "ktlk", "tttt"] {
        assert!(kinds.contains(wanted), "{wanted} in {kinds:?}");
    }
}

#[test]
fn unsynced_names_may_vanish_or_reappear() {
    let disk = SimDisk::new();
    write(&disk, "old", 0, b"old");
    write(&disk, "gone", 0, b"gone");
    disk.sync_dir().unwrap();
    write(&disk, "new", 0, b"new");
    disk.rename("old", "renamed").unwrap();
    disk.delete("gone").unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let names = after_crash(&disk, seed).list().unwrap();
        let renamed = names.contains(&"renamed".to_owned());
        assert_ne!(renamed, names.contains(&"old".to_owned()), "a rename is one change");
        seen.insert(names);
    }
    assert_eq!(seen.len(), 8, "{seen:?}");
    disk.sync_dir().unwrap();
    assert_eq!(after_crash(&disk, 1).list().unwrap(), ["new", "renamed"]);
}

#[test]
fn same_seed_gives_the_same_crash_and_advances() {
    let disk = SimDisk::new();
    write(&disk, "a", 0, &[1; 10_000]);
    disk.sync_dir().unwrap();
    let (mut one, mut two) = (42, 42);
    let (a, b) = (disk.fork(), disk.fork());
    a.crash(&mut one);
    b.crash(&mut two);
    assert_eq!((a.content("a"), one), (b.content("a"), two));
    assert_ne!(one, 42);
}

#[test]
fn sync_after_a_failed_sync_lies() {
    let disk = SimDisk::new();
    write(&disk, "a", 0, b"lost");
    disk.sync_dir().unwrap();
    let file = disk.open("a").unwrap();
    disk.inject(|faults| faults.sync_error_after = Some(0));
    disk.sync(&file).unwrap_err();
    disk.sync(&file).unwrap();
    assert_eq!(disk.content("a").unwrap(), b"lost", "still readable");
    disk.crash(&mut 1);
    assert_eq!(disk.content("a").unwrap(), b"");
    assert!(disk.sync(&file).is_err(), "a handle from before the crash is dead");
}

#[test]
fn full_disk_accepts_what_fits_and_more_after_deletes() {
    let disk = SimDisk::new();
    write(&disk, "a", 0, &[1; 100]);
    disk.inject(|faults| faults.free_bytes = Some(50));
    let file = disk.create("b").unwrap();
    assert!(disk.preallocate(&file, 80).is_err());
    assert!(disk.write_at(&file, 0, &[2; 80]).is_err());
    disk.write_at(&disk.open("a").unwrap(), 0, &[3; 100]).unwrap();
    disk.delete("a").unwrap();
    disk.write_at(&file, 0, &[2; 80]).unwrap();
}

#[test]
fn operations_are_counted() {
    let disk = SimDisk::new();
    write(&disk, "a", 0, &[1; 100]);
    disk.sync(&disk.open("a").unwrap()).unwrap();
    disk.sync_dir().unwrap();
    let counts = disk.counts();
    assert_eq!((counts.writes, counts.bytes_written), (1, 100));
    assert_eq!((counts.syncs, counts.dir_syncs, counts.steps), (1, 1, 4));
}

#[test]
fn deleted_file_is_freed_once_unreachable() {
    let disk = SimDisk::new();
    write(&disk, "a", 0, b"content");
    let open = disk.open("a").unwrap();
    disk.delete("a").unwrap();
    disk.sync_dir().unwrap();
    let mut bytes = [0; 7];
    disk.read_at(&open, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"content");
}
