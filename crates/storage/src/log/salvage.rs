//! Reads what can be read of a damaged log. Never for a node that is to go on under its id: what
//! it acknowledged may be missing.

use super::recover::{self, Reading};
use super::state::{HardState, LogEntry, Position};
use crate::disk::Disk;
use crate::fault::Fault;

/// What is left of a damaged log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Up to here everything is in a snapshot.
    pub compacted: Position,
    /// The entries behind it, up to the first record that is not sound.
    pub entries: Vec<LogEntry>,
    /// The last vote that can be read.
    pub hard_state: HardState,
    /// What is wrong; none if all of it is sound.
    pub damage: Option<Fault>,
}

/// Reads all records up to the first that is not sound. Changes nothing.
pub fn salvage<D: Disk>(disk: &D) -> Result<Salvaged, Fault> {
    let segments = recover::segment_numbers(disk)?;
    let (_, run) = recover::last_run(&segments);
    let mut bytes = Vec::new();
    let mut reading: Option<Reading<D::File>> = None;
    let mut damage = None;
    for &segment in run {
        match recover::read_next(disk, segment, &mut reading, &mut bytes) {
            Ok(next) => reading = Some(next),
            Err(fault) => {
                damage = Some(fault);
                break;
            }
        }
    }
    let Some(reading) = reading else { return Ok(Salvaged { damage, ..Salvaged::default() }) };
    let damage = damage.or_else(|| reading.judge(&bytes, run).err());
    let standing = reading.replay.standing;
    Ok(Salvaged {
        compacted: standing.compacted,
        entries: reading.replay.entries.into(),
        hard_state: standing.hard_state,
        damage,
    })
}
