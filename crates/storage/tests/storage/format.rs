//! The files in docs/storage-format.md, byte by byte: the code writes exactly these. A change here
//! is a new version of the format, and the old one must still be readable.
#![allow(clippy::disallowed_methods, reason = "reads the document")]

use crate::support::{Content, hard_state, options};
use holdfast_sim_disk::SimDisk;
use holdfast_storage::{Disk, Identity, Log, LogEntry, Position, SnapshotWriter, open_latest};
use std::fmt::Write as _;

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/storage-format.md");
    std::fs::read_to_string(path).unwrap()
}

/// The file without trailing zeros, 16 bytes per line.
fn dump(disk: &SimDisk, name: &str) -> String {
    let mut bytes = disk.content(name).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    bytes.truncate(used.next_multiple_of(8));
    let mut text = String::new();
    for (line, chunk) in bytes.chunks(16).enumerate() {
        let hex: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
        let show = |byte: &u8| if byte.is_ascii_graphic() { *byte as char } else { '.' };
        let shown: String = chunk.iter().map(show).collect();
        let (left, right) = hex.split_at(hex.len().min(8));
        let (left, right) = (left.join(" "), right.join(" "));
        writeln!(text, "    {:04x}  {left:23}  {right:23}  {shown}", line * 16).unwrap();
    }
    text
}

/// The bytes of the dump in the document that follows this heading.
fn documented(heading: &str) -> String {
    let document = document();
    let (_, rest) = document.split_once(heading).expect("the heading stands in the document");
    let is_dump = |line: &&str| line.starts_with("    0");
    let lines = rest.lines().skip_while(|line| !is_dump(line)).take_while(is_dump);
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Writes what a dump shows to a file on a new disk.
fn parsed(dump: &str, disk: &SimDisk, name: &str, length: usize) {
    let mut bytes = Vec::new();
    for line in dump.lines() {
        let hex = line[10..58].split_whitespace();
        bytes.extend(hex.map(|byte| u8::from_str_radix(byte, 16).unwrap()));
    }
    bytes.resize(length.max(bytes.len()), 0);
    disk.write_at(&disk.create(name).unwrap(), 0, &bytes).unwrap();
}

const LOG: &str = "log-00000000000000000001";
const SNAPSHOT: &str = "snapshot-00000000000000000007";

#[test]
fn a_log() {
    let disk = SimDisk::new();
    let (mut log, _) = Log::open(&disk, options()).unwrap();
    let entry = LogEntry::batch(1, 2, b"acquire seat-12A");
    log.append(std::slice::from_ref(&entry), Some(hard_state(2, 3, 0))).unwrap();
    log.close().unwrap();
    assert_eq!(dump(&disk, LOG), documented("## A log, dumped"), "{}", dump(&disk, LOG));

    let old = SimDisk::new();
    parsed(&documented("## A log, dumped"), &old, LOG, 4096);
    let (_, found) = Log::open(&old, options()).unwrap();
    let expected = Content {
        compacted: Position::default(),
        hard_state: hard_state(2, 3, 0),
        entries: vec![entry],
    };
    assert_eq!(Content::from(&found), expected);
}

#[test]
fn a_snapshot() {
    let disk = SimDisk::new();
    let mut writer = SnapshotWriter::begin(&disk, crate::support::at(7, 2), b"members").unwrap();
    writer.piece(0, b"first piece").unwrap();
    writer.piece(1, b"second").unwrap();
    writer.finish().unwrap();
    let shown = dump(&disk, SNAPSHOT);
    assert_eq!(shown, documented("## A snapshot, dumped"), "{shown}");
    let reader = open_latest(&disk).unwrap().unwrap();
    assert_eq!(reader.position(), crate::support::at(7, 2));
}

#[test]
fn an_identity() {
    let disk = SimDisk::new();
    Identity { cluster: 0xC1, node: 3 }.store(&disk).unwrap();
    let shown = dump(&disk, "identity");
    assert_eq!(shown, documented("## An identity, dumped"), "{shown}");
    let old = SimDisk::new();
    parsed(&shown, &old, "identity", 56);
    assert_eq!(Identity::load(&old), Ok(Some(Identity { cluster: 0xC1, node: 3 })));
}
