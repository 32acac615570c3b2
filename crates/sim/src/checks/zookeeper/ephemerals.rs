//! An ephemeral znode is gone soon after its session has ended, and not before unless somebody deletes
//! it or breaks its lock.

use crate::checks::{Applied, Violation};
use holdfast_core::{Effect, EndReason, NodeEvent, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;

/// Entries that may pass until all are gone: each removes a few, of all sessions that have ended.
const ENTRIES_MAX: u64 = 300;

#[derive(Debug, Default)]
pub(super) struct Ephemerals {
    owners: BTreeMap<Arc<str>, SessionId>,
    ended: BTreeSet<SessionId>,
    /// Sessions that ended a while ago, and in which entry.
    ending: Vec<(SessionId, u64)>,
    /// What clients have asked to delete.
    deleted: BTreeSet<String>,
}

impl Ephemerals {
    pub(super) fn deletes(&mut self, path: &str) {
        self.deleted.insert(path.to_owned());
    }

    pub(super) fn applied(&mut self, applied: &Applied<'_>) -> Result<(), Violation> {
        let forced = |effect: &Effect| matches!(effect, Effect::Ended(ended) if ended.how == EndReason::Forced);
        for effect in applied.effects {
            if let Effect::SessionEnded { session, .. } = effect {
                self.ended.insert(*session);
                self.ending.push((*session, applied.at.index));
            }
        }
        for effect in applied.effects {
            let Effect::NodeChanged { path, what, .. } = effect else { continue };
            match what {
                NodeEvent::Created => {
                    let owner = applied.state.node(path).map(|node| node.stat.ephemeral_owner);
                    let owner = owner.and_then(|id| NonZeroU64::new(id.cast_unsigned()));
                    self.owners.extend(owner.map(|id| (path.clone(), SessionId(id))));
                }
                NodeEvent::Deleted => {
                    let owner = self.owners.remove(path);
                    if let Some(session) = owner.filter(|owner| !self.ended.contains(owner))
                        && !self.deleted.contains(&**path)
                        && !applied.effects.iter().any(forced)
                    {
                        return Err(format!(
                            "ephemerals: {path} is gone, and its session {session} lives"
                        ));
                    }
                }
                NodeEvent::DataChanged => {}
            }
        }
        let due = |(_, at): &(SessionId, u64)| at + ENTRIES_MAX < applied.at.index;
        let gone: Vec<SessionId> =
            self.ending.extract_if(.., |at| due(at)).map(|(s, _)| s).collect();
        for session in gone {
            if let Some(path) = applied.state.ephemeral_nodes(session).next() {
                return Err(format!(
                    "ephemerals: {path} is there, and its session {session} ended {ENTRIES_MAX} entries \
                     ago"
                ));
            }
        }
        Ok(())
    }
}
