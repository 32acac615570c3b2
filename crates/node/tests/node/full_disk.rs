//! A node's files on a disk that is full for a while.

use holdfast_core::{Limits, State};
use holdfast_node::{
    Cluster, EntryKind, LogEntry, NodeDisk, NodeId, Persist, Position, SnapshotTask, write_snapshot,
};
use holdfast_sim_disk::{SimDisk, SimFaults};
use holdfast_storage::{Disk, Options, WriteError};

fn options() -> Options {
    Options { segment_bytes: 8_192, ..Options::default() }
}

fn members() -> Cluster {
    Cluster::begin([(NodeId(1), "node-1".to_owned())])
}

/// A disk whose log has the entries 2 to 5.
fn written() -> SimDisk {
    let disk = SimDisk::new();
    NodeDisk::begin(&disk, &members()).unwrap();
    let (mut files, _) = NodeDisk::open(&disk, options(), Limits::DEFAULT, 1).unwrap();
    let entry = |index| {
        let at = Position { index, term: 1 };
        LogEntry { at, kind: EntryKind::Batch, data: vec![1; 100] }
    };
    let entries = (2..=5).map(entry).collect();
    files.write(&Persist { number: 1, installed: None, entries, hard_state: None }).unwrap();
    files.close().unwrap();
    disk
}

fn snapshot_at(index: u64) -> SnapshotTask {
    let snapshot = State::new(Limits::DEFAULT, 1).snapshot();
    SnapshotTask { at: Position { index, term: 1 }, cluster: members(), snapshot }
}

/// A crash occurred between writing a snapshot and adjusting the log to it, and the disk was full
/// when the node started again: it reported its disk as damaged, and an operator who believed it
/// would have thrown away a healthy member.
#[test]
fn full_disk_at_startup_is_not_damage() {
    let disk = written();
    write_snapshot(&disk, &snapshot_at(3)).unwrap();
    disk.end_process();
    let mut refused = 0;
    for bytes in 0.. {
        let disk = disk.fork();
        disk.inject(|faults| faults.write_full_after_bytes = Some(bytes));
        let Err(fault) = NodeDisk::open(&disk, options(), Limits::DEFAULT, 1) else { break };
        assert!(!fault.is_damage(), "room for {bytes} bytes: {fault}");
        refused += 1;
        disk.end_process();
        disk.inject(|faults| *faults = SimFaults::default());
        let (_, boot) = NodeDisk::open(&disk, options(), Limits::DEFAULT, 1).unwrap();
        assert_eq!((boot.loaded.at.index, boot.entries.len()), (3, 2));
    }
    assert!(refused > 0);
}

/// When a snapshot did not fit, the space it had taken stayed taken, on a disk that had no room
/// left.
#[test]
fn snapshot_that_does_not_fit_frees_its_space() {
    let disk = written();
    for free in 0..400 {
        disk.inject(|faults| faults.free_bytes = Some(free));
        match write_snapshot(&disk, &snapshot_at(3)) {
            Ok(()) => return,
            Err(WriteError::Full { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        assert!(!disk.list().unwrap().iter().any(|name| name.ends_with(".tmp")), "{free} free");
    }
    panic!("400 bytes are enough");
}
