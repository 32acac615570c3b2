//! What the log did to znodes, in order.

use crate::checks::Applied;
use holdfast_core::{Effect, NodeEvent};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Change {
    pub(super) path: Arc<str>,
    pub(super) what: NodeEvent,
    pub(super) zxid: u64,
    /// When the first node applied it.
    pub(super) at_us: u64,
}

#[derive(Debug, Default)]
pub(super) struct History {
    changes: Vec<Change>,
    by_path: BTreeMap<Arc<str>, Vec<(u64, NodeEvent)>>,
    there: BTreeSet<Arc<str>>,
}

impl History {
    pub(super) fn applied(&mut self, applied: &Applied<'_>) {
        for effect in applied.effects {
            if let Effect::NodeChanged { path, what, zxid } = effect {
                match what {
                    NodeEvent::Created => drop(self.there.insert(path.clone())),
                    NodeEvent::Deleted => drop(self.there.remove(path)),
                    NodeEvent::DataChanged => {}
                }
                self.by_path.entry(path.clone()).or_default().push((*zxid, *what));
                let (path, what, zxid, at_us) = (path.clone(), *what, *zxid, applied.now_us);
                self.changes.push(Change { path, what, zxid, at_us });
            }
        }
    }

    /// The znodes that there are.
    pub(super) fn there(&self) -> &BTreeSet<Arc<str>> {
        &self.there
    }

    pub(super) fn change(&self, at: usize) -> Option<&Change> {
        self.changes.get(at)
    }

    /// Where the changes begin that a state with this zxid does not have. A state has whole entries, and
    /// the zxids of one entry are higher than those of all entries before it.
    pub(super) fn after(&self, zxid: u64) -> usize {
        self.changes.partition_point(|change| change.zxid <= zxid)
    }

    /// The last change of a znode that a state with this zxid has.
    pub(super) fn last(&self, path: &str, zxid: u64) -> Option<(u64, NodeEvent)> {
        let changes = self.by_path.get(path)?;
        let after = changes.partition_point(|(changed, _)| *changed <= zxid);
        changes.get(after.checked_sub(1)?).copied()
    }
}
