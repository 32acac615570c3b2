//! Znodes as a door reads them. Queries only: they change nothing.

use super::Tree;
use crate::ids::SessionId;
use crate::text::NodeData;
use crate::tree::{Acl, Stat};
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

    /// How many znodes are below one, at any depth.
    pub(crate) fn descendants(&self, path: &str) -> usize {
        let below = |node: &super::Node| {
            let rest = node.path.strip_prefix(path);
            path == "/" && &*node.path != "/" || rest.is_some_and(|rest| rest.starts_with('/'))
        };
        self.data.nodes.iter().filter(|(_, node)| below(node)).count()
    }

    /// The paths of all znodes, in byte order: for tests and tools.
    pub(crate) fn paths(&self) -> Vec<Arc<str>> {
        let mut paths: Vec<Arc<str>> =
            self.data.nodes.iter().map(|(_, node)| node.path.clone()).collect();
        paths.sort_unstable();
        paths
    }
}
