//! Reads what it can from a damaged log. Never for a node that is to continue under its id:
//! something it acknowledged may be missing.

use super::recover::{self, Reading};
use super::state::{HardState, LogEntry, Position};
use crate::disk::Disk;
use crate::fault::Fault;

/// What is left of a damaged log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Everything up to here is in a snapshot.
    pub compacted: Position,
    /// The entries after it, up to the first invalid record.
    pub entries: Vec<LogEntry>,
    /// The last hard state that could be read.
    pub hard_state: HardState,
    /// What is wrong; `None` if everything is valid.
    pub damage: Option<Fault>,
}

/// Reads all records up to the first invalid one. Changes nothing.
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
    let log_state = reading.replay.log_state;
    Ok(Salvaged {
        compacted: log_state.compacted,
        entries: reading.replay.entries.into(),
        hard_state: log_state.hard_state,
        damage,
    })
}
