//! Effects tell every znode that came or went: whoever follows them knows which there are. A recipe that
//! waits for a znode to go is woken by nothing else.

use super::history::History;
use crate::checks::{Applied, Violation};

/// All znodes are looked at in one of so many entries.
const EVERY_ENTRIES: u64 = 16;

pub(super) fn applied(applied: &Applied<'_>, history: &History) -> Result<(), Violation> {
    if !applied.is_last || !applied.at.index.is_multiple_of(EVERY_ENTRIES) {
        return Ok(());
    }
    let mut there = applied.state.node_paths();
    there.retain(|path| &**path != "/" && !path.starts_with("/zookeeper"));
    match there.iter().find(|path| !history.there().contains(*path)) {
        Some(path) => return Err(format!("complete: nobody was told that {path} has come")),
        None if there.len() == history.there().len() => {}
        None => {
            let gone = history.there().iter().find(|path| !there.contains(path));
            return Err(format!("complete: nobody was told that {gone:?} has gone"));
        }
    }
    Ok(())
}
