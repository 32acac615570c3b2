//! Damage at rest: a bit flipped where the log or a snapshot vouches for it.

use crate::rng::Rng;
use holdfast_sim_disk::SimDisk;
use holdfast_storage::{Disk, inspect};

/// Flips a bit that the next start must notice; says where, or none if nothing is vouched for.
pub(crate) fn flip(disk: &SimDisk, rng: &mut Rng) -> Option<String> {
    if rng.per_mille(300) { flip_snapshot(disk, rng) } else { flip_log(disk, rng) }
}

/// Any bit of the newest finished snapshot.
fn flip_snapshot(disk: &SimDisk, rng: &mut Rng) -> Option<String> {
    let finished = |name: &String| name.starts_with("snapshot-") && !name.ends_with(".tmp");
    let name = disk.list().ok()?.into_iter().filter(finished).max()?;
    let bytes = disk.content(&name)?.len() as u64;
    flip_at(disk, &name, rng.range(0, bytes), rng)
}

/// Any bit of a record of which another record says that it was synced.
fn flip_log(disk: &SimDisk, rng: &mut Rng) -> Option<String> {
    let mut records = inspect(disk).ok()?;
    records.retain(|record| record.vouched);
    let record = rng.pick(&records)?;
    let at = record.offset + rng.range(0, record.bytes);
    flip_at(disk, &record.file, at, rng)
        .map(|place| format!("{place}, in a {} record", record.what))
}

fn flip_at(disk: &SimDisk, name: &str, at: u64, rng: &mut Rng) -> Option<String> {
    disk.flip_bit(name, at, rng.range(0, 8) as u8).then(|| format!("{name} byte {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_storage::{Log, LogEntry, Options, Position, SnapshotWriter};
    use std::collections::BTreeSet;

    #[test]
    fn every_bit_flip_is_detected() {
        let disk = SimDisk::new();
        let at = Position { index: 3, term: 1 };
        let mut writer = SnapshotWriter::begin(&disk, at, b"members").unwrap();
        writer.piece(0, b"the locks").unwrap();
        writer.finish().unwrap();
        let (mut log, _) = Log::open(&disk, Options::default()).unwrap();
        let entries: Vec<_> = (1..9).map(|index| LogEntry::batch(index, 1, b"acquire")).collect();
        log.append(&entries, None).unwrap();
        log.close().unwrap();
        let mut rng = Rng::new(1);
        let mut files = BTreeSet::new();
        for _ in 0..200 {
            let disk = disk.fork();
            disk.end_process();
            let place = flip(&disk, &mut rng).unwrap();
            let read = || {
                let snapshot = holdfast_storage::open_latest(&disk)?.unwrap();
                for piece in snapshot.pieces() {
                    piece?;
                }
                Log::open(&disk, Options::default()).map(|_| ())
            };
            assert!(read().is_err_and(|fault| fault.is_damage()), "{place}");
            files.insert(place.split('-').next().map(str::to_owned));
        }
        assert_eq!(files.len(), 2, "{files:?}");
    }
}
