//! Znodes: a list, and everything found by searching all of it.

use super::Model;
use super::records::Ticket;
use crate::support::compare::ShownNode;
use holdfast_core::{
    Acl, Answer, BadPath, Door, Effect, EndReason, Forced, Label, Lease, LockName, Mode, NodeData,
    NodeEvent, NodeKind, NodeOp, NodeRefusal, NodeResult, Reason, Recipe, Refusal, Revoke,
    SessionId, Stat, Token, TreeCommand, TreeWrite,
};
use std::sync::Arc;

/// A znode.
#[derive(Debug, Clone)]
pub(crate) struct Znode {
    path: String,
    data: Option<NodeData>,
    acl: Vec<Acl>,
    kind: NodeKind,
    session: Option<SessionId>,
    czxid: u64,
    mzxid: u64,
    pzxid: u64,
    ctime_ms: u64,
    mtime_ms: u64,
    version: i32,
    aversion: i32,
    /// The number of children that were ever created.
    creates: i32,
    idle_since_ms: u64,
    ticket: Option<Contender>,
}

/// The ticket that a znode represents.
#[derive(Debug, Clone, Copy)]
struct Contender {
    token: Token,
    foreign: bool,
    /// It died, and its lock-delay is still running.
    over: bool,
}

pub(super) fn built_in() -> Vec<Znode> {
    ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"]
        .map(|path| {
            let config = path.ends_with("config");
            let mut node = Znode::new(path.to_owned(), 0, 0, 0);
            node.data = NodeData::parse("").ok();
            node.acl = vec![Acl { perms: if config { 1 } else { 31 }, ..Acl::open() }];
            node.aversion = if config { -1 } else { 0 };
            node
        })
        .to_vec()
}

/// A place in line that gets a znode.
struct Place {
    /// `None` if it is not known: it gets a number of its own.
    token: Option<Token>,
    /// The label of a dead holder; `None` if the ticket is alive.
    dead: Option<Option<Label>>,
}

impl Znode {
    fn new(path: String, zxid: u64, wall_ms: u64, now_ms: u64) -> Self {
        Self {
            path,
            data: None,
            acl: Vec::new(),
            kind: NodeKind::Persistent,
            session: None,
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime_ms: wall_ms,
            mtime_ms: wall_ms,
            version: 0,
            aversion: 0,
            creates: 0,
            idle_since_ms: now_ms,
            ticket: None,
        }
    }

    fn allows(&self, perm: u32) -> bool {
        // Only `world:anyone` is used here.
        self.acl.iter().any(|entry| entry.perms & perm != 0)
    }
}

/// The part before the last slash; `/` if there is only one.
fn above(path: &str) -> String {
    let at = path.rfind('/').expect("a path");
    if at == 0 { "/".to_owned() } else { path[..at].to_owned() }
}

fn last_name(path: &str) -> &str {
    &path[path.rfind('/').map_or(0, |at| at + 1)..]
}

fn lock_above(path: &str) -> Option<LockName> {
    LockName::parse(&above(path)[1..]).ok()
}

/// The recipes of the names that are used here.
fn place(name: &str) -> Option<(Recipe, Mode)> {
    Some(match name {
        "m__lock__" => (Recipe::Kazoo, Mode::Exclusive),
        "m__rlock__" => (Recipe::Kazoo, Mode::Shared),
        "m__WRIT__" => (Recipe::ReadWrite, Mode::Exclusive),
        "lock-" => (Recipe::Mutex, Mode::Exclusive),
        "n-" => (Recipe::Plain, Mode::Exclusive),
        _ => return None,
    })
}

/// The recipe of a contender, its own or another door's.
fn recipe_of(name: &str) -> Recipe {
    let ends = |marker: &str| name[..name.len() - 10].ends_with(marker);
    if ends("__lock__") || ends("__rlock__") {
        Recipe::Kazoo
    } else if ends("__WRIT__") {
        Recipe::ReadWrite
    } else if ends("lock-") {
        Recipe::Mutex
    } else {
        Recipe::Plain
    }
}

impl Model {
    fn at(&self, path: &str) -> Option<&Znode> {
        self.nodes.iter().find(|node| node.path == path)
    }

    fn at_mut(&mut self, path: &str) -> Option<&mut Znode> {
        self.nodes.iter_mut().find(|node| node.path == path)
    }

    fn names_below(&self, path: &str) -> Vec<String> {
        let below = self.nodes.iter().filter(|node| node.path != "/" && above(&node.path) == path);
        let mut names: Vec<String> = below.map(|node| last_name(&node.path).to_owned()).collect();
        names.sort();
        names
    }

    fn stat(&self, node: &Znode) -> Stat {
        let children = self.names_below(&node.path).len() as i32;
        Stat {
            czxid: node.czxid,
            mzxid: node.mzxid,
            ctime_ms: node.ctime_ms,
            mtime_ms: node.mtime_ms,
            version: node.version,
            cversion: node.creates * 2 - children,
            aversion: node.aversion,
            ephemeral_owner: match node.kind {
                NodeKind::Ephemeral => node.session.expect("whose").0.get() as i64,
                _ => 0,
            },
            data_length: node.data.as_ref().map_or(0, |data| data.as_bytes().len()) as i32,
            num_children: children,
            pzxid: node.pzxid,
        }
    }

    pub(crate) fn shown_nodes(&self) -> Vec<ShownNode> {
        let shown = self.nodes.iter().map(|node| {
            let names = self.names_below(&node.path);
            (node.path.clone(), node.data.clone(), node.acl.clone(), self.stat(node), names)
        });
        let mut shown: Vec<ShownNode> = shown.collect();
        shown.sort_by(|one, other| one.0.cmp(&other.0));
        shown
    }

    fn draw_number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn changed(&mut self, path: &str, what: NodeEvent, zxid: u64) {
        self.effects.push(Effect::NodeChanged { path: Arc::from(path), what, zxid });
    }

    fn add_node(&mut self, node: Znode, zxid: u64) {
        let (path, parent) = (node.path.clone(), above(&node.path));
        if let Some(parent) = self.at_mut(&parent) {
            parent.creates += 1;
            parent.pzxid = parent.pzxid.max(zxid);
        }
        self.nodes.push(node);
        self.changed(&path, NodeEvent::Created, zxid);
    }

    fn remove_node(&mut self, path: &str, zxid: u64) {
        self.nodes.retain(|node| node.path != path);
        let (parent, now_ms) = (above(path), self.now_ms);
        let empty = self.names_below(&parent).is_empty();
        if let Some(parent) = self.at_mut(&parent) {
            parent.pzxid = parent.pzxid.max(zxid);
            if empty && parent.kind == NodeKind::Container {
                parent.idle_since_ms = now_ms;
            }
        }
        self.changed(path, NodeEvent::Deleted, zxid);
    }

    pub(super) fn remove_node_now(&mut self, path: &str) {
        let zxid = self.draw_number();
        self.remove_node(path, zxid);
    }

    /// Znodes that expire, and when.
    pub(super) fn due_nodes(&self) -> Vec<(u64, String)> {
        let due = self.nodes.iter().filter(|node| self.names_below(&node.path).is_empty());
        let due = due.filter_map(|node| {
            let after_ms = match node.kind {
                NodeKind::Ttl { ms } => ms,
                NodeKind::Container if node.creates > 0 => 60_000,
                _ => return None,
            };
            Some((node.idle_since_ms.saturating_add(after_ms), node.path.clone()))
        });
        due.collect()
    }

    pub(super) fn tree(&mut self, command: TreeCommand) -> Result<Answer, Refusal> {
        match command {
            TreeCommand::Attach(session) => {
                self.owned_session(session)?;
                let attachment = self.draw_number();
                self.attachments.retain(|(known, _)| *known != session.id);
                self.attachments.push((session.id, attachment));
                self.effects.push(Effect::SessionAttached { session: session.id, attachment });
                Ok(Answer::SessionAttached { attachment })
            }
            TreeCommand::Write(write) => self.write_nodes(write),
        }
    }

    /// Everything is done to a copy, which is kept if nothing was refused.
    fn write_nodes(&mut self, write: TreeWrite) -> Result<Answer, Refusal> {
        let id = write.session.id;
        self.owned_session(write.session)?;
        let attached = self.attachments.iter().find(|(known, _)| *known == id);
        if attached.map_or(0, |(_, attachment)| *attachment) != write.attachment {
            return Err(Refusal::SessionMoved(id));
        }
        let refused = |op: usize, why| Refusal::Node { op: op as u32, why };
        if write.ops.len() > self.limits.node_ops_max {
            return Err(refused(0, NodeRefusal::TooManyOps));
        }
        let bytes: usize = write.ops.iter().map(bytes_of).sum();
        if bytes > self.limits.transaction_bytes_max {
            return Err(refused(0, NodeRefusal::TooLarge));
        }
        let ephemerals = self.nodes.iter().filter(|node| node.session == Some(id)).count();
        let mut writing = Writing {
            session: id,
            zxid: None,
            before: self.clone(),
            ephemerals,
            created: 0,
            deleted: 0,
        };
        let mut copy = self.clone();
        let mut results = Vec::new();
        for (at, op) in write.ops.iter().enumerate() {
            let result = copy.write_node(op, &mut writing).map_err(|why| refused(at, why))?;
            results.push(result);
        }
        let len = self.nodes.len() - 4 + writing.created - writing.deleted;
        if writing.created > writing.deleted && len > self.limits.nodes_max {
            return Err(refused(0, NodeRefusal::Full));
        }
        *self = copy;
        Ok(Answer::Written(results))
    }

    fn write_node(&mut self, op: &NodeOp, w: &mut Writing) -> Result<NodeResult, NodeRefusal> {
        match op {
            NodeOp::Create { path, data, acl, kind, sequential } => {
                self.create(path, data, acl, *kind, *sequential, w)
            }
            NodeOp::Delete { path, version } => {
                if path == "/" || path.starts_with("/zookeeper") {
                    return Err(NodeRefusal::BadPath(BadPath::Reserved));
                }
                let parent = self.at(&above(path)).ok_or(NodeRefusal::NoNode)?;
                if !parent.allows(8) {
                    return Err(NodeRefusal::NoAuth);
                }
                let node = self.at(path).ok_or(NodeRefusal::NoNode)?.clone();
                right_version(node.version, *version)?;
                if !self.names_below(path).is_empty() {
                    return Err(NodeRefusal::NotEmpty);
                }
                if let Some(ticket) = node.ticket.filter(|ticket| ticket.foreign) {
                    return Err(NodeRefusal::OtherDoor(ticket.token));
                }
                w.deleted += 1;
                let zxid = self.zxid_of(w);
                self.remove_node(path, zxid);
                if let Some(ticket) = node.ticket {
                    self.end_contender(ticket.token, node.session, w.session);
                }
                Ok(NodeResult::Deleted)
            }
            NodeOp::SetData { path, data, version } => {
                let node = self.at(path).ok_or(NodeRefusal::NoNode)?;
                if !node.allows(2) {
                    return Err(NodeRefusal::NoAuth);
                }
                right_version(node.version, *version)?;
                if let Some(ticket) = node.ticket.filter(|ticket| ticket.foreign) {
                    let revoke = data.as_ref().is_some_and(|d| d.as_bytes() == b"__REVOKE__");
                    if !revoke || ticket.over {
                        return Err(NodeRefusal::OtherDoor(ticket.token));
                    }
                    let stat = self.stat(node);
                    self.ask_for(ticket.token, path, w.session);
                    return Ok(NodeResult::Set(stat));
                }
                let zxid = self.zxid_of(w);
                let (wall_ms, now_ms) = (self.wall_ms, self.now_ms);
                let node = self.at_mut(path).expect("it is there");
                node.data = data.clone();
                node.version += 1;
                node.mzxid = node.mzxid.max(zxid);
                node.mtime_ms = wall_ms;
                if matches!(node.kind, NodeKind::Ttl { .. }) {
                    node.idle_since_ms = now_ms;
                }
                self.changed(path, NodeEvent::DataChanged, zxid);
                Ok(NodeResult::Set(self.stat(self.at(path).expect("it is there"))))
            }
            NodeOp::SetAcl { path, acl, version } => {
                let node = self.at(path).ok_or(NodeRefusal::NoNode)?;
                if !node.allows(16) {
                    return Err(NodeRefusal::NoAuth);
                }
                right_version(node.aversion, *version)?;
                if let Some(ticket) = node.ticket.filter(|ticket| ticket.foreign) {
                    return Err(NodeRefusal::OtherDoor(ticket.token));
                }
                self.zxid_of(w);
                let node = self.at_mut(path).expect("it is there");
                node.acl = acl.clone();
                node.aversion += 1;
                Ok(NodeResult::Set(self.stat(self.at(path).expect("it is there"))))
            }
            NodeOp::Check { path, version } => {
                let node = self.at(path).ok_or(NodeRefusal::NoNode)?;
                if !node.allows(1) {
                    return Err(NodeRefusal::NoAuth);
                }
                right_version(node.version, *version)?;
                Ok(NodeResult::Checked)
            }
        }
    }

    fn zxid_of(&mut self, w: &mut Writing) -> u64 {
        let zxid = w.zxid.unwrap_or_else(|| self.draw_number());
        w.zxid = Some(zxid);
        zxid
    }

    fn create(
        &mut self,
        path: &str,
        data: &Option<NodeData>,
        acl: &[Acl],
        kind: NodeKind,
        sequential: bool,
        w: &mut Writing,
    ) -> Result<NodeResult, NodeRefusal> {
        if kind == (NodeKind::Ttl { ms: 0 }) {
            return Err(NodeRefusal::BadTtl);
        }
        if !path.contains('/') {
            return Err(NodeRefusal::BadPath(BadPath::Relative));
        }
        if last_name(path).starts_with("holdfast-ticket-") {
            return Err(NodeRefusal::BadPath(BadPath::Ticket));
        }
        let parent = self.at(&above(path)).ok_or(NodeRefusal::NoNode)?.clone();
        if !parent.allows(4) {
            return Err(NodeRefusal::NoAuth);
        }
        let place = place(last_name(path)).filter(|_| sequential && above(path) != "/");
        if place.is_some() && lock_above(path).is_none() {
            return Err(NodeRefusal::BadPath(BadPath::LockTooLong));
        }
        let place = place.zip(lock_above(path));
        if place.is_some() && !matches!(kind, NodeKind::Ephemeral | NodeKind::Persistent) {
            return Err(NodeRefusal::TicketWithTtl);
        }
        let mut waiting = Vec::new();
        if let Some(((recipe, mode), lock)) = &place {
            waiting = self.check_place(*recipe, *mode, lock, w)?;
        }
        let number = parent.creates + waiting.len() as i32;
        let full = if sequential { format!("{path}{number:010}") } else { path.to_owned() };
        if full.ends_with('/') {
            return Err(NodeRefusal::BadPath(BadPath::TrailingSlash));
        }
        if full.contains("//") {
            return Err(NodeRefusal::BadPath(BadPath::EmptyName));
        }
        if self.at(&full).is_some() {
            return Err(NodeRefusal::NodeExists);
        }
        if parent.kind == NodeKind::Ephemeral || parent.ticket.is_some() {
            return Err(NodeRefusal::ParentIsEphemeral);
        }
        if kind == NodeKind::Ephemeral {
            w.ephemerals += 1;
            if w.ephemerals > self.limits.ephemerals_per_session_max {
                return Err(NodeRefusal::TooManyEphemerals);
            }
        }
        w.created += 1;
        let session = (kind == NodeKind::Ephemeral).then_some(w.session);
        let (zxid, ticket) = match place {
            None => (self.zxid_of(w), None),
            Some(((recipe, mode), lock)) => {
                if !waiting.is_empty() {
                    self.draw_number();
                }
                for place in waiting {
                    let token = place.token.unwrap_or(Token(self.counter));
                    self.show_ticket(&lock, recipe, token, place.dead);
                }
                let token = self.draw_contender(lock, mode, session, data.as_ref());
                (token.0, Some(Contender { token, foreign: false, over: false }))
            }
        };
        let new = Znode::new(full.clone(), zxid, self.wall_ms, self.now_ms);
        let (data, acl) = (data.clone(), acl.to_vec());
        self.add_node(Znode { data, acl, kind, session, ticket, ..new }, zxid);
        let stat = self.stat(self.at(&full).expect("it is there"));
        Ok(NodeResult::Created { path: Arc::from(full), stat })
    }

    /// Tickets that are already in line without a znode. Whether a contender may join depends on
    /// the lines before the command, and on what the command itself has added.
    fn check_place(
        &self,
        recipe: Recipe,
        mode: Mode,
        lock: &LockName,
        w: &Writing,
    ) -> Result<Vec<Place>, NodeRefusal> {
        let in_use = w.before.recipe(lock).or_else(|| self.recipe(lock));
        if let Some(other) = in_use.filter(|in_use| *in_use != recipe) {
            return Err(NodeRefusal::OtherRecipe { recipe: other });
        }
        let refused = |refusal| NodeRefusal::Lock(Box::new(refusal));
        if let Some(kept) = self.kept(lock) {
            let kind = super::keys::kind_of(&kept.object);
            return Err(refused(Refusal::InUse { name: lock.clone(), kind }));
        }
        let line = w.before.line(lock);
        if let Some(Mode::Permit { of }) = line.first().map(|ticket| ticket.mode) {
            let (name, permits) = (lock.clone(), Some(of));
            return Err(refused(Refusal::OtherKind { name, permits }));
        }
        let _ = mode;
        if w.before.waiters(lock).len() >= self.limits.waiters_per_lock_max {
            return Err(refused(Refusal::Full(holdfast_core::Bound::Waiters)));
        }
        let drawn = self
            .tickets
            .iter()
            .filter(|ticket| ticket.is_in_line(lock) && w.before.ticket(ticket.token).is_none());
        if w.before.tickets.len() + drawn.count() >= self.limits.tickets_max {
            return Err(refused(Refusal::Full(holdfast_core::Bound::Tickets)));
        }
        if in_use.is_some() {
            return Ok(Vec::new());
        }
        let line = self.line(lock);
        let mut places: Vec<Place> = Vec::new();
        places.extend(line.iter().map(|ticket| Place { token: Some(ticket.token), dead: None }));
        // A dead holder keeps its place while nobody is served.
        if let Some(past) = self.past(lock).filter(|past| past.delayed_until_ms.is_some()) {
            let death = past.death.as_ref().map(|death| &death.ending);
            let mut endings = death.into_iter().chain(past.last.as_ref());
            // A restore marks what is still held.
            let death = endings.find(|ending| self.ticket(ending.token).is_none());
            match death {
                Some(ending) => {
                    let dead = Some(ending.label.clone());
                    places.push(Place { token: Some(ending.token), dead });
                    places.sort_by_key(|place| place.token);
                }
                None if places.is_empty() => places.push(Place { token: None, dead: Some(None) }),
                None => {}
            }
        }
        Ok(places)
    }

    /// The recipe whose contenders are in the directory of a lock.
    fn recipe(&self, lock: &LockName) -> Option<Recipe> {
        let contenders = self.nodes.iter().filter(|node| node.ticket.is_some());
        let mut of_lock = contenders.filter(|node| lock_above(&node.path).as_ref() == Some(lock));
        of_lock.next().map(|node| recipe_of(last_name(&node.path)))
    }

    fn draw_contender(
        &mut self,
        lock: LockName,
        mode: Mode,
        session: Option<SessionId>,
        data: Option<&NodeData>,
    ) -> Token {
        let token = Token(self.draw_number());
        let label = data.filter(|data| !data.as_bytes().is_empty());
        self.tickets.push(Ticket {
            token,
            names: vec![lock],
            mode,
            session,
            lease: if session.is_some() { Lease::Session } else { Lease::Permanent },
            due_ms: None,
            label: label.and_then(|data| Label::parse(data.as_bytes()).ok()),
            note: None,
            secret: None,
            claims: Vec::new(),
            lock_delay_ms: 0,
            door: Door::ZooKeeper,
            held: false,
            joined_ms: self.now_ms,
            granted_ms: 0,
            upgrades: None,
            revocation: None,
            after: None,
            relabelled: 0,
        });
        self.serve();
        token
    }

    fn end_contender(&mut self, token: Token, owner: Option<SessionId>, by: SessionId) {
        if owner.is_some_and(|owner| owner != by) {
            let reason = Reason::parse("its znode was deleted").expect("short");
            let forced = Forced { by: session_label(by), reason };
            return self.end(token, EndReason::Forced, Some(&forced));
        }
        let held = self.ticket(token).is_some_and(|ticket| ticket.held);
        self.end(token, if held { EndReason::Released } else { EndReason::Cancelled }, None);
    }

    fn ask_for(&mut self, token: Token, path: &str, session: SessionId) {
        let name = lock_above(path).expect("it is a lock");
        let reason = Reason::parse("__REVOKE__ was written to its znode").expect("short");
        let by = session_label(session);
        let token = Some(token);
        let _ = self.revoke(Revoke { name, token, by, reason, within_ms: 0, force: false });
    }

    fn show_ticket(
        &mut self,
        lock: &LockName,
        recipe: Recipe,
        token: Token,
        dead: Option<Option<Label>>,
    ) {
        let directory = format!("/{lock}");
        let number = self.at(&directory).expect("it has contenders").creates;
        let marker = match recipe {
            Recipe::Kazoo => "__lock__",
            Recipe::ReadWrite => "__WRIT__",
            Recipe::Mutex => "lock-",
            Recipe::Latch => "latch-",
            Recipe::Plain => "n-",
        };
        let name = format!("holdfast-ticket-{:023}-{marker}{number:010}", token.0);
        let over = dead.is_some();
        let living = || self.ticket(token).and_then(|ticket| self.label_of(ticket));
        let label = dead.unwrap_or_else(living);
        let label = label.map_or(String::new(), |label| label.to_string());
        let new = Znode::new(format!("{directory}/{name}"), token.0, self.wall_ms, self.now_ms);
        let node = Znode {
            data: NodeData::parse(label).ok(),
            acl: vec![Acl { perms: 3, ..Acl::open() }],
            ticket: Some(Contender { token, foreign: true, over }),
            ..new
        };
        self.add_node(node, self.counter);
    }

    /// Removes the znodes of ended sessions; then adds one for each new ticket in a line, and
    /// removes those of tickets that ended.
    pub(super) fn follow(&mut self) {
        let mut gone: Vec<(SessionId, u64, String)> = Vec::new();
        for node in self.nodes.iter().filter(|node| node.ticket.is_none()) {
            if let Some(id) = node.session.filter(|id| self.session(*id).is_none()) {
                gone.push((id, node.czxid, node.path.clone()));
            }
        }
        gone.sort();
        for (_, _, path) in gone {
            self.remove_node_now(&path);
        }
        let living: Vec<SessionId> = self.sessions.iter().map(|session| session.id).collect();
        self.attachments.retain(|(id, _)| living.contains(id));
        for ticket in self.tickets.clone() {
            let shown = |node: &Znode| node.ticket.is_some_and(|t| t.token == ticket.token);
            if self.nodes.iter().any(shown) {
                continue;
            }
            for lock in &ticket.names {
                if let Some(recipe) = self.recipe(lock) {
                    self.show_ticket(lock, recipe, ticket.token, None);
                }
            }
        }
        let mut went: Vec<(Token, String)> = Vec::new();
        for node in &self.nodes {
            if let Some(ticket) = node.ticket.filter(|ticket| !ticket.over)
                && self.ticket(ticket.token).is_none()
            {
                went.push((ticket.token, node.path.clone()));
            }
        }
        went.sort();
        for (token, path) in went {
            let lock = lock_above(&path).expect("it is a lock");
            let delays = |effect: &Effect| {
                matches!(effect, Effect::Delayed { name, after, .. }
                    if *name == lock && after.token == token)
            };
            if self.effects.iter().any(delays) {
                let node = self.at_mut(&path).expect("it is there");
                node.ticket = node.ticket.map(|ticket| Contender { over: true, ..ticket });
            } else {
                self.lose_ticket(&path);
            }
        }
        let mut over: Vec<String> = Vec::new();
        for node in self.nodes.iter().filter(|node| node.ticket.is_some_and(|t| t.over)) {
            if self.delayed_until(&lock_above(&node.path).expect("it is a lock")).is_none() {
                over.push(node.path.clone());
            }
        }
        over.sort();
        for path in over {
            self.lose_ticket(&path);
        }
    }

    fn lose_ticket(&mut self, path: &str) {
        if self.names_below(path).is_empty() {
            self.remove_node_now(path);
        } else {
            self.at_mut(path).expect("it is there").ticket = None;
        }
    }
}

/// One command in progress.
struct Writing {
    session: SessionId,
    zxid: Option<u64>,
    /// The state before it.
    before: Model,
    ephemerals: usize,
    created: usize,
    deleted: usize,
}

fn right_version(is: i32, wanted: Option<i32>) -> Result<(), NodeRefusal> {
    match wanted {
        Some(wanted) if wanted != is => Err(NodeRefusal::BadVersion),
        _ => Ok(()),
    }
}

fn session_label(session: SessionId) -> Label {
    Label::parse(format!("ZooKeeper session 0x{:x}", session.0.get())).expect("short")
}

fn bytes_of(op: &NodeOp) -> usize {
    let of_data = |data: &Option<NodeData>| data.as_ref().map_or(0, |data| data.as_bytes().len());
    let of_acl = |acl: &[Acl]| acl.iter().map(|a| a.id.scheme.len() + a.id.id.len()).sum::<usize>();
    match op {
        NodeOp::Create { path, data, acl, .. } => path.len() + of_data(data) + of_acl(acl),
        NodeOp::SetData { path, data, .. } => path.len() + of_data(data),
        NodeOp::SetAcl { path, acl, .. } => path.len() + of_acl(acl),
        NodeOp::Delete { path, .. } | NodeOp::Check { path, .. } => path.len(),
    }
}
