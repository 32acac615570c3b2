//! Adds and removes znodes.

use super::recipes;
use super::tickets::Directory;
use super::{BUILT_IN, Data, Indexes, Tree};
use crate::containers::{Keyed, Slot};
use crate::effect::Effect;
use crate::ids::{SessionId, Token};
use crate::lines::StoreAccess;
use crate::text::{LockName, NodeData};
use crate::tree::{
    Acl, NodeEvent, NodeKind, Stat, acl_bytes, data_bytes, name_of, parent_of, perms,
};
use crate::weight::Weight;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How long a container stays after its last child is gone: ZooKeeper's interval between checks.
pub(super) const CONTAINER_KEPT_MS: u64 = 60_000;

/// One znode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) path: Arc<str>,
    pub(crate) data: Option<NodeData>,
    pub(crate) acl: Arc<[Acl]>,
    pub(crate) kind: NodeKind,
    /// Its session, if it is ephemeral.
    pub(crate) session: Option<SessionId>,
    pub(crate) czxid: u64,
    pub(crate) mzxid: u64,
    pub(crate) pzxid: u64,
    pub(crate) ctime_ms: u64,
    pub(crate) mtime_ms: u64,
    pub(crate) version: i32,
    pub(crate) aversion: i32,
    /// How many children were ever created, which numbers the next one. Like ZooKeeper's own
    /// counter, it stops when it is full.
    pub(crate) creates: i32,
    /// When its TTL started or, for a container, when its last child was deleted.
    pub(crate) idle_since_ms: u64,
    /// The ticket that it represents.
    pub(crate) ticket: Option<NodeTicket>,
}

/// The ticket that a znode represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeTicket {
    pub(crate) token: Token,
    /// Whether the ticket was drawn through another door.
    pub(crate) foreign: bool,
    /// Whether the ticket has ended, and its lock-delay is still running.
    pub(crate) over: bool,
}

impl Keyed for Node {
    type Key = str;
    fn key(&self) -> &str {
        &self.path
    }
}

impl Node {
    pub(super) fn built_in(path: &str) -> Self {
        let config = path == "/zookeeper/config";
        let acl = if config { Acl { perms: perms::READ, ..Acl::open() } } else { Acl::open() };
        Self {
            path: Arc::from(path),
            data: NodeData::parse([]).ok(),
            acl: Arc::from([acl]),
            kind: NodeKind::Persistent,
            session: None,
            czxid: 0,
            mzxid: 0,
            pzxid: 0,
            ctime_ms: 0,
            mtime_ms: 0,
            version: 0,
            aversion: if config { -1 } else { 0 },
            creates: 0,
            idle_since_ms: 0,
            ticket: None,
        }
    }

    pub(crate) fn is_built_in(&self) -> bool {
        BUILT_IN.contains(&&*self.path)
    }

    /// Built-in znodes are not counted.
    pub(crate) fn weight(&self) -> Weight {
        let path = if self.is_built_in() { 0 } else { self.path.len() };
        let acl = if self.is_built_in() && self.aversion <= 0 { 0 } else { acl_bytes(&self.acl) };
        let texts = path.saturating_add(data_bytes(self.data.as_ref())).saturating_add(acl);
        Weight::texts(texts)
    }

    pub(super) fn stat(&self, children: usize) -> Stat {
        let num_children = i32::try_from(children).unwrap_or(i32::MAX);
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime_ms: self.ctime_ms,
            mtime_ms: self.mtime_ms,
            version: self.version,
            cversion: self.creates.wrapping_mul(2).wrapping_sub(num_children),
            aversion: self.aversion,
            ephemeral_owner: self.session.map_or(0, |id| id.0.get().cast_signed()),
            data_length: i32::try_from(data_bytes(self.data.as_ref())).unwrap_or(i32::MAX),
            num_children,
            pzxid: self.pzxid,
        }
    }

    /// When it expires, if it has no children.
    fn due_ms(&self) -> Option<u64> {
        match self.kind {
            NodeKind::Ttl { ms } => Some(self.idle_since_ms.saturating_add(ms)),
            // A container that never had a child waits for its first.
            NodeKind::Container if self.creates > 0 => {
                Some(self.idle_since_ms.saturating_add(CONTAINER_KEPT_MS))
            }
            NodeKind::Container | NodeKind::Persistent | NodeKind::Ephemeral => None,
        }
    }

    /// The directory and number of a reader's znode without a ticket of its own: Curator creates
    /// one with the number of a write lock that the same client holds.
    fn joins(&self) -> Option<(LockName, String, Arc<str>)> {
        let number =
            recipes::joined_number(name_of(&self.path)).filter(|_| self.session.is_some())?;
        Some((parent_of(&self.path).and_then(lock_of)?, number.to_owned(), self.path.clone()))
    }

    fn ephemeral(&self) -> Option<(SessionId, bool, u64, Arc<str>)> {
        Some((self.session?, self.ticket.is_some(), self.czxid, self.path.clone()))
    }
}

impl Indexes {
    /// Adds a znode to its parent's children.
    pub(super) fn add_child(&mut self, data: &Data, node: &Node) {
        let parent = parent_of(&node.path).and_then(|path| self.paths.get(&data.nodes, path));
        if let Some(parent) = parent {
            self.children.entry(parent).or_default().insert(Arc::from(name_of(&node.path)));
        }
    }

    /// Adds a znode to all other indexes. Its children are already known.
    pub(super) fn add_rest(&mut self, slot: Slot, node: &Node) {
        if let Some(ephemeral) = node.ephemeral() {
            let len = self.ephemerals_len.entry(ephemeral.0).or_default();
            *len = len.saturating_add(1);
            self.ephemerals.insert(ephemeral);
        }
        if !self.children.contains_key(&slot) {
            self.due.extend(node.due_ms().map(|due_ms| (due_ms, node.path.clone())));
        }
        let Some(ticket) = node.ticket else {
            self.joined.extend(node.joins());
            return;
        };
        self.tickets.entry(ticket.token).or_default().push(node.path.clone());
        self.tickets.entry(ticket.token).or_default().sort_unstable();
        if ticket.over {
            self.delayed.insert(node.path.clone());
        }
        let lock = parent_of(&node.path).and_then(lock_of);
        if let (Some(lock), Some(recipe)) = (lock, recipes::recipe_of(name_of(&node.path))) {
            let new = || Directory { recipe, children: Default::default() };
            let directory = self.directories.entry(lock).or_insert_with(new);
            directory.children.insert(ticket.token, node.path.clone());
        }
    }

    fn remove_rest(&mut self, node: &Node) {
        if let Some(ephemeral) = node.ephemeral() {
            self.ephemerals.remove(&ephemeral);
            if let Some(len) = self.ephemerals_len.get_mut(&ephemeral.0) {
                *len = len.saturating_sub(1);
                if *len == 0 {
                    self.ephemerals_len.remove(&ephemeral.0);
                }
            }
        }
        if let Some(due_ms) = node.due_ms() {
            self.due.remove(&(due_ms, node.path.clone()));
        }
        let Some(ticket) = node.ticket else {
            if let Some(place) = node.joins() {
                self.joined.remove(&place);
            }
            return;
        };
        self.delayed.remove(&node.path);
        if let Some(paths) = self.tickets.get_mut(&ticket.token) {
            paths.retain(|path| *path != node.path);
            if paths.is_empty() {
                self.tickets.remove(&ticket.token);
            }
        }
        let Some(lock) = parent_of(&node.path).and_then(lock_of) else { return };
        if let Some(directory) = self.directories.get_mut(&lock) {
            directory.children.remove(&ticket.token);
            if directory.children.is_empty() {
                self.directories.remove(&lock);
            }
        }
    }
}

/// The lock that a directory represents; `None` if its path can't be a lock name.
pub(super) fn lock_of(directory: &str) -> Option<LockName> {
    LockName::parse(directory.strip_prefix('/')?).ok()
}

impl Tree {
    pub(super) fn slot(&self, path: &str) -> Option<Slot> {
        self.index.paths.get(&self.data.nodes, path)
    }

    pub(super) fn node(&self, path: &str) -> Option<&Node> {
        self.data.nodes.get(self.slot(path)?)
    }

    pub(super) fn children_of(&self, slot: Slot) -> usize {
        self.index.children.get(&slot).map_or(0, std::collections::BTreeSet::len)
    }

    pub(super) fn stat_of(&self, path: &str) -> Stat {
        let slot = self.slot(path);
        let node = slot.and_then(|slot| Some((slot, self.data.nodes.get(slot)?)));
        node.map_or(Stat::default(), |(slot, node)| node.stat(self.children_of(slot)))
    }

    /// Changes a znode, and everything that depends on it.
    pub(super) fn change(
        &mut self,
        path: &str,
        lines: &mut impl StoreAccess,
        change: impl FnOnce(&mut Node),
    ) {
        let Some(slot) = self.slot(path) else { return };
        let Some(node) = self.data.nodes.get_mut(slot) else { return };
        let before = node.weight();
        self.index.remove_rest(node);
        change(node);
        self.index.add_rest(slot, node);
        lines.weigh(before, node.weight());
    }

    /// Adds a znode to its parent, which must exist.
    pub(super) fn add(
        &mut self,
        node: Node,
        zxid: u64,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) {
        let path = node.path.clone();
        if let Some(parent) = parent_of(&path) {
            self.change(parent, lines, |parent| {
                let creates = parent.creates.saturating_add(1);
                if creates > parent.creates {
                    // In a multi, a ticket has a later zxid than the changes that follow it.
                    (parent.creates, parent.pzxid) = (creates, parent.pzxid.max(zxid));
                }
            });
        }
        lines.weigh(Weight::NONE, node.weight());
        let slot = self.data.nodes.insert(node);
        self.index.paths.insert(&self.data.nodes, slot);
        let Some(node) = self.data.nodes.get(slot) else { return };
        self.index.add_child(&self.data, node);
        self.index.add_rest(slot, node);
        // A parent that was about to expire has a child again.
        if let Some(parent) = parent_of(&path).and_then(|parent| self.node(parent))
            && let Some(due_ms) = parent.due_ms()
        {
            let due = (due_ms, parent.path.clone());
            self.index.due.remove(&due);
        }
        effects.push(Effect::NodeChanged { path, what: NodeEvent::Created, zxid });
    }

    /// Removes a znode without children.
    pub(super) fn remove(
        &mut self,
        path: &str,
        zxid: u64,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) {
        let Some(slot) = self.slot(path) else { return };
        self.index.paths.remove(&self.data.nodes, slot);
        let Some(node) = self.data.nodes.remove(slot) else { return };
        self.index.remove_rest(&node);
        self.index.children.remove(&slot);
        lines.weigh(node.weight(), Weight::NONE);
        let parent = parent_of(path).and_then(|parent| Some((parent, self.slot(parent)?)));
        if let Some((parent, slot)) = parent {
            if let Some(children) = self.index.children.get_mut(&slot) {
                children.remove(name_of(path));
                if children.is_empty() {
                    self.index.children.remove(&slot);
                }
            }
            let now_ms = lines.now_ms();
            let empty = self.children_of(slot) == 0;
            self.change(parent, lines, |parent| {
                parent.pzxid = parent.pzxid.max(zxid);
                if empty && parent.kind == NodeKind::Container {
                    parent.idle_since_ms = now_ms;
                }
            });
        }
        effects.push(Effect::NodeChanged { path: node.path, what: NodeEvent::Deleted, zxid });
    }
}
