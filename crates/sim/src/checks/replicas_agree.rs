//! Replicas agree: whoever applies an entry computes the same from it. An entry that was applied
//! and then replaced by another, because it was acknowledged before it was durable, shows here.

use super::Violation;
use holdfast_node::{NodeId, Position};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct ReplicasAgree {
    first: BTreeMap<u64, (u64, u64)>,
}

impl ReplicasAgree {
    /// Whether this is the first time that the entry is seen.
    pub(crate) fn applied(
        &mut self,
        node: NodeId,
        at: Position,
        digest: u64,
    ) -> Result<bool, Violation> {
        let now = (at.term, digest);
        match self.first.get(&at.index) {
            None => {
                self.first.insert(at.index, now);
                Ok(true)
            }
            Some(first) if *first == now => Ok(false),
            Some(first) => Err(format!(
                "replicas agree: node {node} applied entry {} of term {} and computed {:x}; before, it \
                 was of term {} and gave {:x}",
                at.index, now.0, now.1, first.0, first.1
            )),
        }
    }

    pub(crate) fn last(&self) -> u64 {
        self.first.last_key_value().map_or(0, |(index, _)| *index)
    }
}
