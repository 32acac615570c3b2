//! Znodes as a door reads them. Queries only: they change nothing.

use super::Tree;
use crate::ids::SessionId;
use crate::text::NodeData;
use crate::tree::{Acl, Stat, parent_of};
use std::ops::Bound;
use std::sync::Arc;

/// One znode.
#[derive(Debug, Clone, Copy)]
pub struct NodeView<'a> {
    /// Its data; `None` is ZooKeeper's null.
    pub data: Option<&'a NodeData>,
    /// Its access control list.
    pub acl: &'a [Acl],
    /// Everything else.
    pub stat: Stat,
}

impl Tree {
    pub(crate) fn view(&self, path: &str) -> Option<NodeView<'_>> {
        let slot = self.slot(path)?;
        let node = self.data.nodes.get(slot)?;
        let stat = node.stat(self.children_of(slot));
        Some(NodeView { data: node.data.as_ref(), acl: &node.acl, stat })
    }

    /// The names of a znode's children, in byte order.
    pub(crate) fn children(&self, path: &str) -> impl Iterator<Item = &Arc<str>> {
        let children = self.slot(path).and_then(|slot| self.index.children.get(&slot));
        children.into_iter().flatten()
    }

    /// The ephemeral znodes of a session.
    pub(crate) fn ephemerals(&self, session: SessionId) -> impl Iterator<Item = &Arc<str>> {
        self.ephemerals_of(session)
    }

    /// Counts the znodes below `root`, at any depth, starting with the one that follows `after`, up
    /// to `max` of them. Returns the count, and the last znode if there may be more.
    pub(crate) fn descendants(
        &self,
        root: &str,
        after: Option<&str>,
        max: usize,
    ) -> (usize, Option<String>) {
        let mut at = after.unwrap_or(root).to_owned();
        for found in 0..max {
            match self.next_below(root, &at) {
                Some(next) => at = next,
                None => return (found, None),
            }
        }
        (max, Some(at))
    }

    /// The znode that follows `at` among all below `root`, with parents first and siblings in byte
    /// order. `at` may have been deleted.
    fn next_below(&self, root: &str, at: &str) -> Option<String> {
        let child = |directory: &str, name: &str| {
            if directory == "/" { format!("/{name}") } else { format!("{directory}/{name}") }
        };
        if let Some(first) = self.children(at).next() {
            return Some(child(at, first));
        }
        let mut at = at;
        // Bounded by the depth of the path.
        while at != root {
            let (directory, name) = (parent_of(at)?, at.rsplit('/').next()?);
            let siblings = self.slot(directory).and_then(|slot| self.index.children.get(&slot));
            let behind = (Bound::Excluded(name), Bound::Unbounded);
            let next = siblings.and_then(|names| names.range::<str, _>(behind).next());
            if let Some(next) = next {
                return Some(child(directory, next));
            }
            at = directory;
        }
        None
    }

    /// The paths of all znodes, in byte order: for tests and tools.
    pub(crate) fn paths(&self) -> Vec<Arc<str>> {
        let mut paths: Vec<Arc<str>> =
            self.data.nodes.iter().map(|(_, node)| node.path.clone()).collect();
        paths.sort_unstable();
        paths
    }
}
