//! Readable: a node is never given an entry that its program can't read, while the nodes of a
//! cluster are upgraded one by one.

use super::Violation;
use holdfast_node::{LEVEL, LogEntry, NodeId, level_needed};

/// Judges the entries that a node writes to its log.
pub(crate) fn written(node: NodeId, level: u16, entries: &[LogEntry]) -> Result<(), Violation> {
    if level >= LEVEL {
        return Ok(());
    }
    let unreadable = |entry: &&LogEntry| level_needed(entry).is_none_or(|needed| needed > level);
    match entries.iter().find(unreadable) {
        None => Ok(()),
        Some(entry) => Err(format!(
            "readable: entry {} can't be read by node {node}, whose program is of level {level}",
            entry.at.index
        )),
    }
}
