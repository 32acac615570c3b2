//! One leader a term: whoever votes remembers it, over every crash.

use super::Violation;
use holdfast_node::NodeId;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct OneLeader {
    /// By term: who leads it, and since when.
    terms: BTreeMap<u64, (NodeId, u64)>,
}

impl OneLeader {
    /// Whether this is the first that is heard of this leader.
    pub(crate) fn leads(
        &mut self,
        node: NodeId,
        term: u64,
        now_us: u64,
    ) -> Result<bool, Violation> {
        match self.terms.get(&term) {
            None => {
                self.terms.insert(term, (node, now_us));
                Ok(true)
            }
            Some((leader, _)) if *leader == node => Ok(false),
            Some((leader, _)) => {
                Err(format!("one leader: term {term} has two, node {leader} and node {node}"))
            }
        }
    }

    /// Since when a term has a leader.
    pub(crate) fn since_us(&self, term: u64) -> Option<u64> {
        self.terms.get(&term).map(|(_, since_us)| *since_us)
    }
}
