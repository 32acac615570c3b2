//! Damage at rest: a bit flipped where the log or a snapshot vouches for it.

use crate::rng::Rng;
use holdfast_storage::SimDisk;

/// Flips a bit in the first half of a file that holds something; false if there is none.
pub(crate) fn flip(disk: &SimDisk, rng: &mut Rng) -> bool {
    let Ok(mut names) = holdfast_storage::Disk::list(disk) else { return false };
    names.sort();
    names.retain(|name| name.starts_with("snapshot-"));
    let Some(name) = rng.pick(&names) else { return false };
    let bytes = disk.content(name).map_or(0, |content| content.len() as u64);
    bytes > 64 && disk.flip_bit(name, rng.range(32, bytes - 1), rng.range(0, 8) as u8)
}
