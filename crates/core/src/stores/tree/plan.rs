//! What each change of a command amounts to: a step, or a refusal of the whole command.
//!
//! As in ZooKeeper, every change is checked against the znodes as the changes before it will leave
//! them, and in ZooKeeper's order, because clients distinguish the errors. Nothing is changed here,
//! so that the whole command can still be refused.

use super::nodes::{NodeTicket, lock_of};
use super::tickets::dead_place;
use super::{BUILT_IN, Tree, acl, recipes};
use crate::command::Mode;
use crate::lines::StoreAccess;
use crate::refusal::Refusal;
use crate::text::{LockName, NodeData};
use crate::tree::{
    Acl, AuthId, BadPath, NodeKind, NodeOp, NodeRefusal, Recipe, TTL_MS_MAX, TreeWrite, acl_bytes,
    data_bytes, name_of, perms, validate_path,
};
use crate::weight::Weight;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Data that asks the holder of a Curator lock to release it.
pub(super) const REVOKE: &[u8] = b"__REVOKE__";

/// What a change amounts to.
#[derive(Debug)]
pub(super) enum Step {
    Create {
        path: Arc<str>,
        data: Option<NodeData>,
        acl: Arc<[Acl]>,
        kind: NodeKind,
    },
    /// Draws a ticket.
    Draw {
        path: Arc<str>,
        data: Option<NodeData>,
        acl: Arc<[Acl]>,
        kind: NodeKind,
        place: TicketPlace,
    },
    Delete {
        path: String,
    },
    SetData {
        path: String,
        data: Option<NodeData>,
    },
    SetAcl {
        path: String,
        acl: Arc<[Acl]>,
    },
    /// Asks the holder, from another door, to release.
    Revoke {
        path: String,
        ticket: NodeTicket,
    },
    Nothing,
}

/// Where a ticket is to be drawn.
#[derive(Debug)]
pub(super) struct TicketPlace {
    pub(super) lock: LockName,
    pub(super) recipe: Recipe,
    pub(super) mode: Mode,
}

/// A znode as the changes so far will leave it.
#[derive(Debug, Clone)]
struct PlannedNode {
    acl: Arc<[Acl]>,
    /// Whether it can't have children: it is ephemeral, or a place in a line.
    childless: bool,
    version: i32,
    aversion: i32,
    creates: i32,
    children: usize,
    ticket: Option<NodeTicket>,
    bytes: usize,
}

/// The changes of one command.
pub(super) struct Planner<'a, L> {
    tree: &'a Tree,
    lines: &'a L,
    /// Refuses a name that is in use as something other than a lock.
    check_name: &'a dyn Fn(&LockName) -> Result<(), Refusal>,
    ids: &'a [AuthId],
    /// `None` where a znode will be gone.
    planned: BTreeMap<Arc<str>, Option<PlannedNode>>,
    /// The recipes of directories that will represent locks, and how many tickets will be drawn in
    /// each.
    places: BTreeMap<LockName, (Recipe, usize)>,
    ephemerals: usize,
    created: usize,
    deleted: usize,
    grows: Weight,
    shrinks: Weight,
}

impl<'a, L: StoreAccess> Planner<'a, L> {
    pub(super) fn new(
        tree: &'a Tree,
        lines: &'a L,
        check_name: &'a dyn Fn(&LockName) -> Result<(), Refusal>,
        write: &'a TreeWrite,
    ) -> Self {
        let (planned, places) = Default::default();
        let ids = &write.ids[..];
        let (grows, shrinks) = (Weight::NONE, Weight::NONE);
        let (ephemerals, created, deleted) = (tree.ephemerals_len(write.session.id), 0, 0);
        Self {
            tree,
            lines,
            check_name,
            ids,
            planned,
            places,
            ephemerals,
            created,
            deleted,
            grows,
            shrinks,
        }
    }

    /// The steps of all changes, or the index of the first that is not possible and why.
    pub(super) fn plan(mut self, ops: Vec<NodeOp>) -> Result<Vec<Step>, (usize, NodeRefusal)> {
        let limits = self.lines.limits();
        if ops.len() > limits.node_ops_max {
            return Err((0, NodeRefusal::TooManyOps));
        }
        let bytes = ops.iter().map(NodeOp::bytes).fold(0, usize::saturating_add);
        if bytes > limits.transaction_bytes_max {
            return Err((0, NodeRefusal::TooLarge));
        }
        let mut steps = Vec::with_capacity(ops.len());
        for (at, op) in ops.into_iter().enumerate() {
            steps.push(self.step(op).map_err(|why| (at, why))?);
        }
        self.check_growth().map_err(|why| (0, why))?;
        Ok(steps)
    }

    fn check_growth(&self) -> Result<(), NodeRefusal> {
        let len = self.tree.len().saturating_add(self.created).saturating_sub(self.deleted);
        let more = self.grows.without(self.shrinks);
        let full = self.created > self.deleted && len > self.lines.limits().nodes_max;
        if full || self.lines.check_growth(more).is_err() {
            return Err(NodeRefusal::Full);
        }
        Ok(())
    }

    fn step(&mut self, op: NodeOp) -> Result<Step, NodeRefusal> {
        match op {
            NodeOp::Create { path, data, acl, kind, sequential } => {
                self.create(path, data, &acl, kind, sequential)
            }
            NodeOp::Delete { path, version } => self.delete(path, version),
            NodeOp::SetData { path, data, version } => self.set_data(path, data, version),
            NodeOp::SetAcl { path, acl, version } => self.set_acl(path, &acl, version),
            NodeOp::Check { path, version } => {
                let node = self.valid(&path)?;
                self.check_acl(&node, perms::READ)?;
                check_version(node.version, version)?;
                Ok(Step::Nothing)
            }
        }
    }

    fn get(&self, path: &str) -> Option<PlannedNode> {
        if let Some(planned) = self.planned.get(path) {
            return planned.clone();
        }
        let slot = self.tree.slot(path)?;
        let node = self.tree.node(path)?;
        Some(PlannedNode {
            acl: node.acl.clone(),
            childless: node.kind == NodeKind::Ephemeral || node.ticket.is_some(),
            version: node.version,
            aversion: node.aversion,
            creates: node.creates,
            children: self.tree.children_of(slot),
            ticket: node.ticket,
            bytes: data_bytes(node.data.as_ref()),
        })
    }

    fn valid(&self, path: &str) -> Result<PlannedNode, NodeRefusal> {
        validate_path(path).map_err(NodeRefusal::BadPath)?;
        self.get(path).ok_or(NodeRefusal::NoNode)
    }

    fn check_acl(&self, node: &PlannedNode, wanted: u32) -> Result<(), NodeRefusal> {
        let allowed = acl::is_allowed(&node.acl, wanted, self.ids);
        if allowed { Ok(()) } else { Err(NodeRefusal::NoAuth) }
    }

    fn put(&mut self, path: &str, planned: Option<PlannedNode>) {
        self.planned.insert(Arc::from(path), planned);
    }

    fn create(
        &mut self,
        path: String,
        data: Option<NodeData>,
        acl: &[Acl],
        kind: NodeKind,
        sequential: bool,
    ) -> Result<Step, NodeRefusal> {
        if let NodeKind::Ttl { ms } = kind
            && !(1..=TTL_MS_MAX).contains(&ms)
        {
            return Err(NodeRefusal::BadTtl);
        }
        let directory = directory_of(&path)?.to_owned();
        if recipes::is_foreign(name_of(&path)) {
            return Err(NodeRefusal::BadPath(BadPath::Ticket));
        }
        let acl = acl::resolve(acl, self.ids)?;
        let mut parent = self.get(&directory).ok_or(NodeRefusal::NoNode)?;
        self.check_acl(&parent, perms::CREATE)?;
        let place =
            if sequential { self.place(&directory, &path, kind, &mut parent)? } else { None };
        let number = if sequential { recipes::suffix(parent.creates) } else { String::new() };
        let path: Arc<str> = Arc::from(path + &number);
        validate_path(&path).map_err(NodeRefusal::BadPath)?;
        if self.get(&path).is_some() {
            return Err(NodeRefusal::NodeExists);
        }
        if parent.childless {
            return Err(NodeRefusal::ParentIsEphemeral);
        }
        if kind == NodeKind::Ephemeral {
            self.ephemerals = self.ephemerals.saturating_add(1);
            if self.ephemerals > self.lines.limits().ephemerals_per_session_max {
                return Err(NodeRefusal::TooManyEphemerals);
            }
        }
        parent.creates = parent.creates.saturating_add(1);
        parent.children = parent.children.saturating_add(1);
        self.put(&directory, Some(parent));
        let bytes = data_bytes(data.as_ref());
        let ticket = None;
        let childless = kind == NodeKind::Ephemeral || place.is_some();
        let new = PlannedNode {
            acl: acl.clone(),
            childless,
            version: 0,
            aversion: 0,
            creates: 0,
            children: 0,
            ticket,
            bytes,
        };
        self.put(&path, Some(new));
        self.created = self.created.saturating_add(1);
        let texts = path.len().saturating_add(bytes).saturating_add(acl_bytes(&acl));
        self.grows = self.grows.and(Weight::texts(texts));
        Ok(match place {
            Some(place) => Step::Draw { path, data, acl, kind, place },
            None => Step::Create { path, data, acl, kind },
        })
    }

    /// Where a ticket is to be drawn, if the name is a place in a line. Tickets of other doors that
    /// are already there get their numbers first.
    fn place(
        &mut self,
        directory: &str,
        path: &str,
        kind: NodeKind,
        parent: &mut PlannedNode,
    ) -> Result<Option<TicketPlace>, NodeRefusal> {
        let Some((recipe, mode)) = recipes::place_of(name_of(path)) else { return Ok(None) };
        // The root has no name that a lock could have.
        if directory == "/" {
            return Ok(None);
        }
        let lock = lock_of(directory).ok_or(NodeRefusal::BadPath(BadPath::LockTooLong))?;
        if !matches!(kind, NodeKind::Ephemeral | NodeKind::Persistent) {
            return Err(NodeRefusal::TicketWithTtl);
        }
        let of_tree = self.tree.index.directories.get(&lock).map(|directory| directory.recipe);
        let (in_use, drawn) = match self.places.get(&lock) {
            Some((recipe, drawn)) => (Some(*recipe), *drawn),
            None => (of_tree, 0),
        };
        if let Some(recipe) = in_use.filter(|in_use| *in_use != recipe) {
            return Err(NodeRefusal::OtherRecipe { recipe });
        }
        let refused = |refusal| NodeRefusal::Lock(Box::new(refusal));
        (self.check_name)(&lock).map_err(refused)?;
        self.lines.check_entry(&lock, mode, drawn).map_err(refused)?;
        if in_use.is_none() {
            let dead = usize::from(dead_place(&lock, self.lines).is_some());
            let waiting = self.lines.line_len(&lock).saturating_add(dead);
            if waiting > self.lines.limits().steps_max {
                return Err(NodeRefusal::LineTooLong);
            }
            let waiting_i32 = i32::try_from(waiting).unwrap_or(i32::MAX);
            parent.creates = parent.creates.saturating_add(waiting_i32);
            parent.children = parent.children.saturating_add(waiting);
        }
        if parent.creates == i32::MAX {
            return Err(NodeRefusal::NumbersUsedUp);
        }
        self.places.insert(lock.clone(), (recipe, drawn.saturating_add(1)));
        Ok(Some(TicketPlace { lock, recipe, mode }))
    }

    fn delete(&mut self, path: String, version: Option<i32>) -> Result<Step, NodeRefusal> {
        let directory = directory_of(&path)?.to_owned();
        if BUILT_IN.contains(&path.as_str()) {
            return Err(NodeRefusal::BadPath(BadPath::Reserved));
        }
        let mut parent = self.get(&directory).ok_or(NodeRefusal::NoNode)?;
        self.check_acl(&parent, perms::DELETE)?;
        let node = self.get(&path).ok_or(NodeRefusal::NoNode)?;
        check_version(node.version, version)?;
        if node.children > 0 {
            return Err(NodeRefusal::NotEmpty);
        }
        if let Some(ticket) = node.ticket.filter(|ticket| ticket.foreign) {
            return Err(NodeRefusal::OtherDoor(ticket.token));
        }
        parent.children = parent.children.saturating_sub(1);
        self.put(&directory, Some(parent));
        self.put(&path, None);
        self.deleted = self.deleted.saturating_add(1);
        let texts = path.len().saturating_add(node.bytes).saturating_add(acl_bytes(&node.acl));
        self.shrinks = self.shrinks.and(Weight::texts(texts));
        Ok(Step::Delete { path })
    }

    fn set_data(
        &mut self,
        path: String,
        data: Option<NodeData>,
        version: Option<i32>,
    ) -> Result<Step, NodeRefusal> {
        let mut node = self.valid(&path)?;
        self.check_acl(&node, perms::WRITE)?;
        check_version(node.version, version)?;
        if let Some(ticket) = node.ticket.filter(|ticket| ticket.foreign) {
            let revoke = data.as_ref().is_some_and(|data| data.as_bytes() == REVOKE);
            if !revoke || ticket.over {
                return Err(NodeRefusal::OtherDoor(ticket.token));
            }
            return Ok(Step::Revoke { path, ticket });
        }
        self.shrinks = self.shrinks.and(Weight::texts(node.bytes));
        node.bytes = data_bytes(data.as_ref());
        self.grows = self.grows.and(Weight::texts(node.bytes));
        node.version = node.version.wrapping_add(1);
        self.put(&path, Some(node));
        Ok(Step::SetData { path, data })
    }

    fn set_acl(
        &mut self,
        path: String,
        acl: &[Acl],
        version: Option<i32>,
    ) -> Result<Step, NodeRefusal> {
        validate_path(&path).map_err(NodeRefusal::BadPath)?;
        let acl = acl::resolve(acl, self.ids)?;
        let mut node = self.get(&path).ok_or(NodeRefusal::NoNode)?;
        self.check_acl(&node, perms::ADMIN)?;
        check_version(node.aversion, version)?;
        if let Some(ticket) = node.ticket.filter(|ticket| ticket.foreign) {
            return Err(NodeRefusal::OtherDoor(ticket.token));
        }
        self.shrinks = self.shrinks.and(Weight::texts(acl_bytes(&node.acl)));
        self.grows = self.grows.and(Weight::texts(acl_bytes(&acl)));
        node.acl = acl.clone();
        node.aversion = node.aversion.wrapping_add(1);
        self.put(&path, Some(node));
        Ok(Step::SetAcl { path, acl })
    }
}

/// The parent of a path that may be invalid: ZooKeeper looks for that znode first.
fn directory_of(path: &str) -> Result<&str, NodeRefusal> {
    if path.contains('\0') {
        return Err(NodeRefusal::BadPath(BadPath::Character('\0')));
    }
    match path.rsplit_once('/') {
        Some(("", _)) => Ok("/"),
        Some((directory, _)) => Ok(directory),
        None => Err(NodeRefusal::BadPath(BadPath::Relative)),
    }
}

fn check_version(version: i32, wanted: Option<i32>) -> Result<(), NodeRefusal> {
    if wanted.is_none_or(|wanted| wanted == version) {
        Ok(())
    } else {
        Err(NodeRefusal::BadVersion)
    }
}
