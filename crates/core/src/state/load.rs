//! Loads a snapshot. The pieces come in any order, and each record goes straight to its place.

use super::State;
use super::snapshot::{
    ACCESS_VERSION, AccessHead, BadSnapshot, Head, HeadV1, HeadV2, HeadV4, HeadV5, MAGIC, Piece,
    Records, RequestName, TREE_VERSION, TicketRecord,
};
use crate::access::{AuditRecord, RoleName, Rule, User, UserName};
use crate::command::Mode;
use crate::containers::{Index, Slot};
use crate::ids::{RequestId, SessionId, Token};
use crate::limits::Limits;
use crate::lines::fingerprint::Fingerprint;
use crate::lines::history::{Event, History};
use crate::lines::records::{Extra, Lock, Past, Session, Ticket};
use crate::lines::{self, Lines};
use crate::stores::access::{Access, Audit};
use crate::stores::keys::{self, Keys};
use crate::stores::tree::{self, Tree};
use crate::text::{LockName, RequestKey};
use crate::tree::parent_of;
use std::collections::BTreeMap;
use std::sync::Arc;

impl State {
    /// Loads a snapshot from its pieces.
    pub fn load<P: AsRef<[u8]>>(
        pieces: impl IntoIterator<Item = P>,
        limits: Limits,
        hash_key: u64,
    ) -> Result<Self, BadSnapshot> {
        let mut pieces = pieces.into_iter().enumerate();
        let (_, head) = pieces.next().ok_or(BadSnapshot::NotASnapshot)?;
        let (version, head) = read_head(head.as_ref())?;
        let mut loader = Loader::new(version, head, &limits, hash_key);
        for (piece, bytes) in pieces {
            loader.add(read_piece(piece, bytes.as_ref())?)?;
        }
        let (lines, names, keys, tree, access) = loader.finish()?;
        let mut lines = Lines::load(lines, names, limits, hash_key);
        let keys = Keys::load(keys, hash_key, &mut lines);
        let tree = Tree::load(tree, hash_key, &mut lines);
        Ok(Self { lines, keys, tree, access })
    }
}

/// The version and the head.
fn read_head(bytes: &[u8]) -> Result<(u16, Head), BadSnapshot> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(BadSnapshot::NotASnapshot)?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or(BadSnapshot::NotASnapshot)?;
    let damaged = |_| BadSnapshot::Damaged { piece: 0 };
    let of_5 = |before: HeadV5| Head { before, access: AccessHead::default() };
    let of_4 = |before: HeadV4| of_5(HeadV5 { before, nodes: 0, attachments: 0 });
    let of_2 = |before: HeadV2| of_4(HeadV4 { before, fingerprints: 0 });
    let version = u16::from_le_bytes(*version);
    let head = match version {
        1 => postcard::from_bytes(rest).map(HeadV1::now).map(of_2).map_err(damaged),
        2 => postcard::from_bytes(rest).map(of_2).map_err(damaged),
        3 | 4 => postcard::from_bytes(rest).map(of_4).map_err(damaged),
        TREE_VERSION => postcard::from_bytes(rest).map(of_5).map_err(damaged),
        ACCESS_VERSION => postcard::from_bytes(rest).map_err(damaged),
        version => Err(BadSnapshot::UnknownVersion(version)),
    };
    Ok((version, head?))
}

fn read_piece(piece: usize, bytes: &[u8]) -> Result<Piece, BadSnapshot> {
    postcard::from_bytes(bytes).map_err(|_| BadSnapshot::Damaged { piece })
}

impl HeadV1 {
    /// In the form of version 2.
    fn now(self) -> HeadV2 {
        HeadV2 {
            clock: self.clock,
            counter: self.counter,
            sessions_drawn: self.sessions_drawn,
            sequence: self.sequence,
            events_numbered: self.events_numbered,
            records: self.records,
            changes: 0,
            objects: 0,
            relabelled: 0,
        }
    }
}

const NO_SUCH_REQUEST: BadSnapshot = BadSnapshot::Incomplete("a fingerprint belongs to no request");

/// How many records of each kind there are.
#[derive(Debug, Default, PartialEq)]
struct Counted {
    records: Records,
    objects: u64,
    relabelled: u64,
    fingerprints: u64,
    nodes: u64,
    attachments: u64,
    users: u64,
    roles: u64,
    audit: u64,
}

impl Counted {
    /// As the head announces.
    fn announced(head: &Head) -> Self {
        let HeadV5 { before, nodes, attachments } = &head.before;
        let HeadV2 { records, objects, relabelled, .. } = before.before;
        let AccessHead { users, roles, audit, .. } = head.access;
        Self {
            records,
            objects,
            relabelled,
            fingerprints: before.fingerprints,
            nodes: *nodes,
            attachments: *attachments,
            users,
            roles,
            audit,
        }
    }

    fn add(&mut self, piece: &Piece) {
        let Self { records, objects, relabelled, fingerprints, nodes, attachments, .. } = self;
        let (counted, len) = match piece {
            Piece::Pasts(some) => (&mut records.pasts, some.len()),
            Piece::Tickets(some) => (&mut records.tickets, some.len()),
            Piece::Sessions(some) => (&mut records.sessions, some.len()),
            Piece::Alone(some) => (&mut records.alone, some.len()),
            Piece::Register(some) => (&mut records.register, some.len()),
            Piece::Events(some) => (&mut records.events, some.len()),
            Piece::Objects(some) => (objects, some.len()),
            Piece::Relabelled(some) => (relabelled, some.len()),
            Piece::Fingerprints(some) => (fingerprints, some.len()),
            Piece::Nodes(some) => (nodes, some.len()),
            Piece::Attachments(some) => (attachments, some.len()),
            Piece::Users(some) => (&mut self.users, some.len()),
            Piece::Roles(some) => (&mut self.roles, some.len()),
            Piece::Audit(some) => (&mut self.audit, some.len()),
        };
        *counted = counted.saturating_add(len as u64);
    }

    fn check(&self, announced: &Self) -> Result<(), BadSnapshot> {
        if self == announced {
            return Ok(());
        }
        Err(BadSnapshot::Incomplete("the number of records differs"))
    }
}

/// Verifies pieces while they are written: every record is decoded and counted. Takes no more
/// memory than one piece.
#[derive(Debug, Default)]
pub struct SnapshotCheck {
    pieces: usize,
    announced: Option<Counted>,
    seen: Counted,
}

impl SnapshotCheck {
    /// Verifies the next piece.
    pub fn piece(&mut self, bytes: &[u8]) -> Result<(), BadSnapshot> {
        if self.announced.is_none() {
            self.announced = Some(Counted::announced(&read_head(bytes)?.1));
        } else {
            self.seen.add(&read_piece(self.pieces, bytes)?);
        }
        self.pieces = self.pieces.saturating_add(1);
        Ok(())
    }

    /// Verifies that nothing is missing after the last piece.
    pub fn end(self) -> Result<(), BadSnapshot> {
        self.seen.check(&self.announced.ok_or(BadSnapshot::NotASnapshot)?)
    }
}

/// The content of the pieces, and the index of lock names.
type Finished = (lines::Data, Index<Lock>, keys::Data, tree::Data, Access);

/// Assembles the pieces, in any order: each record goes to its place as soon as it is read.
struct Loader {
    announced: Counted,
    seen: Counted,
    lines: lines::Data,
    keys: keys::Data,
    tree: tree::Data,
    access: AccessHead,
    users: BTreeMap<UserName, User>,
    roles: BTreeMap<RoleName, Vec<Rule>>,
    audit: Vec<Arc<AuditRecord>>,
    names: Index<Lock>,
    numbers: Vec<Token>,
    events: Vec<Event>,
    relabelled: BTreeMap<Token, u64>,
    /// The fingerprints of requests, by session; `asked_alone` has those without one.
    asked: BTreeMap<SessionId, Vec<(RequestId, Fingerprint)>>,
    asked_alone: BTreeMap<RequestKey, Fingerprint>,
}

impl Loader {
    fn new(version: u16, head: Head, limits: &Limits, hash_key: u64) -> Self {
        let announced = Counted::announced(&head);
        let access = head.access;
        let head = head.before.before.before;
        let lines = lines::Data {
            clock: head.clock,
            counter: head.counter,
            sessions_drawn: head.sessions_drawn,
            sequence: head.sequence,
            history: History::of(Vec::new(), head.events_numbered),
            ..lines::Data::default()
        };
        let keys = keys::Data { changes: head.changes, ..keys::Data::default() };
        let tree = if version < TREE_VERSION { tree::Data::new() } else { tree::Data::default() };
        // The head may be damaged, so capacity is reserved only within the limits.
        let tickets = usize::try_from(head.records.tickets).unwrap_or(usize::MAX);
        let tickets = tickets.min(limits.tickets_max);
        Self {
            announced,
            seen: Counted::default(),
            lines,
            keys,
            tree,
            access,
            users: BTreeMap::new(),
            roles: BTreeMap::new(),
            audit: Vec::new(),
            names: Index::with_capacity(tickets, hash_key),
            numbers: Vec::with_capacity(tickets),
            events: Vec::new(),
            relabelled: BTreeMap::new(),
            asked: BTreeMap::new(),
            asked_alone: BTreeMap::new(),
        }
    }

    fn add(&mut self, piece: Piece) -> Result<(), BadSnapshot> {
        self.seen.add(&piece);
        let Self { lines, keys, tree, .. } = self;
        match piece {
            Piece::Pasts(pasts) => {
                for (name, past) in pasts {
                    self.leave_past(name, past)?;
                }
            }
            Piece::Tickets(tickets) => {
                for ticket in tickets {
                    self.enter_line(ticket)?;
                }
            }
            Piece::Sessions(mut sessions) => {
                sessions.iter_mut().for_each(Session::weigh_memory);
                lines.sessions.extend(sessions);
            }
            Piece::Alone(alone) => lines.alone.extend(alone),
            Piece::Register(register) => lines.register.extend(register),
            Piece::Events(events) => self.events.extend(events),
            Piece::Objects(objects) => keys.objects.extend(objects),
            Piece::Nodes(nodes) => tree.nodes.extend(nodes),
            Piece::Attachments(attachments) => tree.attachments.extend(attachments),
            Piece::Users(users) => self.users.extend(users),
            Piece::Roles(roles) => self.roles.extend(roles),
            Piece::Audit(audit) => self.audit.extend(audit),
            Piece::Relabelled(relabelled) => self.relabelled.extend(relabelled),
            Piece::Fingerprints(fingerprints) => {
                for (request, fingerprint) in fingerprints {
                    match request {
                        RequestName::InSession(session, id) => {
                            self.asked.entry(session).or_default().push((id, fingerprint));
                        }
                        RequestName::Alone(key) => {
                            self.asked_alone.insert(key, fingerprint);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The data, and the index of lock names.
    fn finish(mut self) -> Result<Finished, BadSnapshot> {
        self.seen.check(&self.announced)?;
        self.relabel()?;
        self.restore_fingerprints()?;
        let AccessHead { tokens_drawn, next_record, .. } = self.access;
        let audit = Audit::of(self.audit, next_record);
        let access = Access::load(self.users, self.roles, tokens_drawn, audit);
        let Self { mut lines, keys, tree, names, mut numbers, events, .. } = self;
        numbers.sort_unstable();
        if numbers.array_windows().any(|[a, b]| a == b) {
            return Err(BadSnapshot::Incomplete("a ticket is listed twice"));
        }
        check_objects(&keys, &lines, &names)?;
        check_nodes(&tree, lines.counter, &numbers)?;
        lines.history = History::of(events, lines.history.next_number);
        Ok((lines, names, keys, tree, access))
    }

    /// Sets at which change tickets were relabelled.
    fn relabel(&mut self) -> Result<(), BadSnapshot> {
        if self.relabelled.is_empty() {
            return Ok(());
        }
        let of =
            |(slot, ticket): (Slot, &Ticket)| Some((slot, self.relabelled.get(&ticket.number)?));
        let found: Vec<(Slot, u64)> = self
            .lines
            .tickets
            .iter()
            .filter_map(of)
            .map(|(slot, change)| (slot, *change))
            .collect();
        if found.len() != self.relabelled.len() {
            return Err(BadSnapshot::Incomplete("a label belongs to no ticket"));
        }
        for (slot, change) in found {
            if let Some(ticket) = self.lines.tickets.get_mut(slot) {
                ticket.extra_mut().relabelled = change;
            }
        }
        Ok(())
    }

    /// Sets the fingerprints of requests.
    fn restore_fingerprints(&mut self) -> Result<(), BadSnapshot> {
        let Self { lines, asked, asked_alone, .. } = self;
        let slots: Vec<Slot> = lines.sessions.iter().map(|(slot, _)| slot).collect();
        for session in slots {
            let Some(session) = lines.sessions.get_mut(session) else { continue };
            for (id, fingerprint) in asked.remove(&session.id).unwrap_or_default() {
                let known = session.request_mut(id).ok_or(NO_SUCH_REQUEST)?;
                known.fingerprint = Some(fingerprint);
            }
        }
        let slots: Vec<Slot> = lines.alone.iter().map(|(slot, _)| slot).collect();
        for alone in slots {
            let Some(alone) = lines.alone.get_mut(alone) else { continue };
            alone.fingerprint = asked_alone.remove(&alone.key);
        }
        if asked.is_empty() && asked_alone.is_empty() { Ok(()) } else { Err(NO_SUCH_REQUEST) }
    }

    fn lock(&mut self, name: LockName) -> Slot {
        let Self { lines, names, .. } = self;
        names.get(&lines.locks, &name).unwrap_or_else(|| {
            let slot = lines.locks.insert(Lock::new(name));
            names.insert(&lines.locks, slot);
            slot
        })
    }

    fn leave_past(&mut self, name: LockName, past: Past) -> Result<(), BadSnapshot> {
        let slot = self.lock(name);
        let lock = self.lines.locks.get_mut(slot);
        match lock.and_then(|lock| lock.past.replace(Box::new(past))) {
            None => Ok(()),
            Some(_) => Err(BadSnapshot::Incomplete("a lock is listed twice")),
        }
    }

    /// Adds a ticket to its lines.
    fn enter_line(&mut self, record: TicketRecord) -> Result<(), BadSnapshot> {
        if record.number.0 > self.lines.counter {
            return Err(BadSnapshot::Incomplete("a ticket is above the counter"));
        }
        let number = record.number;
        let mut more_locks = Vec::new();
        let mut first = None;
        for name in record.names {
            let slot = self.lock(name);
            if first.is_none() {
                first = Some(slot);
            } else {
                more_locks.push(slot);
            }
            let Some(lock) = self.lines.locks.get_mut(slot) else { continue };
            lock.set_head(Some(lock.head().map_or(number, |head| head.min(number))));
            lock.line_len = lock.line_len.saturating_add(1);
            if record.held {
                lock.holders = lock.holders.saturating_add(1);
                lock.last_served = lock.last_served.max(number);
                lock.exclusive |= record.mode == Mode::Exclusive;
            }
            lock.set_kind(record.mode);
        }
        let Some(lock) = first else {
            return Err(BadSnapshot::Incomplete("a ticket is in no line"));
        };
        let extra = record.extra.map(|extra| Extra {
            note: extra.note,
            more_locks: Vec::new(),
            claims: extra.claims,
            lock_delay_ms: extra.lock_delay_ms,
            upgrades: extra.upgrades,
            revocation: extra.revocation,
            after: extra.after,
            request_key: extra.request_key,
            relabelled: 0,
        });
        let mut ticket = Ticket {
            number: record.number,
            session: record.session,
            request: record.request,
            secret: record.secret,
            label: record.label,
            lock,
            mode: record.mode,
            door: record.door,
            held: record.held,
            lease: record.lease,
            due_ms: record.due_ms,
            joined_ms: record.joined_ms,
            since_ms: record.since_ms,
            extra: extra.map(Box::new),
        };
        if !more_locks.is_empty() {
            ticket.extra_mut().more_locks = more_locks;
        }
        self.numbers.push(number);
        self.lines.tickets.insert(ticket);
        Ok(())
    }
}

/// Each name is at most one object, and not also a lock.
fn check_objects(
    keys: &keys::Data,
    lines: &lines::Data,
    names: &Index<Lock>,
) -> Result<(), BadSnapshot> {
    let mut seen: Vec<&LockName> = keys.objects.iter().map(|(_, stored)| &stored.name).collect();
    seen.sort_unstable();
    if seen.array_windows().any(|[a, b]| a == b) {
        return Err(BadSnapshot::Incomplete("an object is listed twice"));
    }
    let lock = |name: &LockName| lines.locks.get(names.get(&lines.locks, name)?);
    if seen.iter().any(|name| lock(name).is_some_and(|lock| lock.line_len > 0)) {
        return Err(BadSnapshot::Incomplete("an object has the name of a lock"));
    }
    if keys.objects.iter().any(|(_, stored)| stored.version > keys.changes) {
        return Err(BadSnapshot::Incomplete("an object is above the number of changes"));
    }
    Ok(())
}

/// Each path is one znode whose parent exists, and its ticket, if it has one, is in a line.
fn check_nodes(tree: &tree::Data, counter: u64, numbers: &[Token]) -> Result<(), BadSnapshot> {
    let mut paths: Vec<&str> = tree.nodes.iter().map(|(_, node)| &*node.path).collect();
    paths.sort_unstable();
    if paths.array_windows().any(|[a, b]| a == b) {
        return Err(BadSnapshot::Incomplete("a znode is listed twice"));
    }
    if tree::BUILT_IN.iter().any(|path| paths.binary_search(path).is_err()) {
        return Err(BadSnapshot::Incomplete("a znode is missing that is always there"));
    }
    let has_parent =
        |path: &&str| parent_of(path).is_none_or(|parent| paths.binary_search(&parent).is_ok());
    if !paths.iter().all(has_parent) {
        return Err(BadSnapshot::Incomplete("a znode has no parent"));
    }
    for (_, node) in tree.nodes.iter() {
        if node.czxid.max(node.mzxid).max(node.pzxid) > counter {
            return Err(BadSnapshot::Incomplete("a znode is above the counter"));
        }
        let ticket = node.ticket.filter(|ticket| !ticket.over);
        if ticket.is_some_and(|ticket| numbers.binary_search(&ticket.token).is_err()) {
            return Err(BadSnapshot::Incomplete("a znode belongs to no ticket"));
        }
    }
    Ok(())
}
