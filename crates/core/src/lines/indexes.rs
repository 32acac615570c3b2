//! Where to find things in the data. Everything here can be rebuilt from it, and is, when a
//! snapshot is loaded; the invariants rebuild it after every command and compare.

use super::Data;
use super::history::HistoryIndex;
use super::order::LineOrder;
use super::records::{Alone, Lock, Register, Session, Ticket};
use crate::command::SessionKind;
use crate::containers::{Index, NameOrder, Slot};
use crate::ids::{SessionId, Token};
use crate::text::LockName;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub(crate) struct Indexes {
    pub(crate) names: Index<Lock>,
    pub(crate) numbers: Index<Ticket>,
    pub(crate) sessions: Index<Session>,
    pub(crate) alone: Index<Alone>,
    pub(crate) register: Index<Register>,
    pub(crate) history: HistoryIndex,
    pub(crate) order: NameOrder,
    pub(crate) sets: Sets,
}

/// The ordered indexes, which can be compared.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Sets {
    pub(crate) lines: LineOrder,
    /// How many tickets are being served.
    pub(crate) held: usize,
    /// How many locks are held.
    pub(crate) held_locks: usize,
    /// Session ids in order, for listing.
    pub(crate) session_ids: BTreeSet<SessionId>,
    /// The living session of each node that opened one with its id.
    pub(crate) node_sessions: BTreeMap<u64, SessionId>,
    /// Tickets that end with their session.
    pub(crate) by_session: BTreeSet<(SessionId, Token)>,
    /// Tickets of a session that don't end with it: held, with their own lease.
    pub(crate) outlive_session: BTreeSet<(SessionId, Token)>,
    /// When waits and leases end.
    pub(crate) due: BTreeSet<(u64, Token)>,
    /// When the time given by revocations ends.
    pub(crate) revocations: BTreeSet<(u64, Token)>,
    /// When lock-delays end.
    pub(crate) delays: BTreeSet<(u64, LockName)>,
    /// Deaths that nobody has recovered from, oldest first.
    pub(crate) deaths: BTreeMap<u64, Slot>,
    /// Sessions whose tickets are being ended, in the order in which they ended.
    pub(crate) dying: BTreeMap<u64, SessionId>,
    /// Request ids without a session that are over, the first to be forgotten first.
    pub(crate) forget: BTreeMap<(u64, u64), Slot>,
    /// Which waiter claims which token: (claimed, waiter).
    pub(crate) claims: BTreeSet<(Token, Token)>,
    /// Tickets in several lines, by line.
    pub(crate) wide: BTreeSet<(Slot, Token)>,
    /// Lines in which serving stopped at the bound of one command.
    pub(crate) unserved: BTreeSet<LockName>,
}

impl Indexes {
    /// `names` is the index of the locks: it was already needed to build the data.
    pub(crate) fn of(data: &Data, names: Index<Lock>, hash_key: u64) -> Self {
        Self {
            names,
            numbers: Index::of(&data.tickets, hash_key),
            sessions: Index::of(&data.sessions, hash_key),
            alone: Index::of(&data.alone, hash_key),
            register: Index::of(&data.register, hash_key),
            history: HistoryIndex::of(&data.history, hash_key),
            order: NameOrder::of(data.locks.iter().map(|(slot, lock)| (slot, &lock.name))),
            sets: Sets::of(data),
        }
    }
}

impl Sets {
    /// Everything but `unserved`, which depends on who could be served.
    pub(crate) fn of(data: &Data) -> Self {
        // Collected, because sorting at once is far cheaper than inserting one by one.
        let tickets = || data.tickets.iter().map(|(_, ticket)| ticket);
        let sessions = || data.sessions.iter().map(|(_, session)| session);
        let locks = || data.locks.iter();
        let behind_head = |ticket: &Ticket, slot: Slot| {
            data.locks.get(slot).is_some_and(|lock| lock.head() != Some(ticket.number))
        };
        let in_lines = tickets().flat_map(|ticket| {
            let behind = ticket.locks().filter(move |slot| behind_head(ticket, *slot));
            behind.map(|slot| (slot, ticket.number))
        });
        let mut sets = Self {
            lines: in_lines.collect(),
            session_ids: sessions().map(|session| session.id).collect(),
            node_sessions: sessions().filter_map(node_session).collect(),
            by_session: tickets().filter_map(|t| Some((t.bound_session()?, t.number))).collect(),
            outlive_session: tickets().filter_map(outlives_session).collect(),
            due: tickets().filter_map(|t| Some((t.due()?, t.number))).collect(),
            delays: locks()
                .filter_map(|(_, lock)| Some((lock.delayed_until_ms()?, lock.name.clone())))
                .collect(),
            held_locks: locks().filter(|(_, lock)| lock.holders > 0).count(),
            deaths: locks().filter_map(|(slot, lock)| Some((lock.death()?.number, slot))).collect(),
            dying: sessions().filter_map(|s| Some((s.dying?.number, s.id))).collect(),
            forget: data.alone.iter().filter_map(|(slot, a)| Some((a.forget?, slot))).collect(),
            ..Self::default()
        };
        for ticket in tickets() {
            sets.add_rest(ticket);
        }
        sets
    }

    /// Adds a ticket to everything but its lines.
    pub(crate) fn add_ticket(&mut self, ticket: &Ticket) {
        let number = ticket.number;
        if let Some(session) = ticket.bound_session() {
            self.by_session.insert((session, number));
        }
        self.outlive_session.extend(outlives_session(ticket));
        if let Some(due_ms) = ticket.due() {
            self.due.insert((due_ms, number));
        }
        self.add_rest(ticket);
    }

    /// For what few tickets have.
    fn add_rest(&mut self, ticket: &Ticket) {
        let number = ticket.number;
        self.held = self.held.saturating_add(usize::from(ticket.held));
        let Some(extra) = &ticket.extra else { return };
        if let Some(revocation) = &extra.revocation {
            self.revocations.insert((revocation.until_ms, number));
        }
        if !ticket.held {
            self.claims.extend(extra.claims.iter().map(|claimed| (*claimed, number)));
        }
        if ticket.has_several_locks() {
            self.wide.extend(ticket.locks().map(|slot| (slot, number)));
        }
    }

    /// Removes a ticket from everything but its lines.
    pub(crate) fn remove_ticket(&mut self, ticket: &Ticket) {
        let number = ticket.number;
        self.held = self.held.saturating_sub(usize::from(ticket.held));
        if let Some(session) = ticket.bound_session() {
            self.by_session.remove(&(session, number));
        }
        if let Some(outlives) = outlives_session(ticket) {
            self.outlive_session.remove(&outlives);
        }
        if let Some(due_ms) = ticket.due() {
            self.due.remove(&(due_ms, number));
        }
        let Some(extra) = &ticket.extra else { return };
        if let Some(revocation) = &extra.revocation {
            self.revocations.remove(&(revocation.until_ms, number));
        }
        if !ticket.held {
            for claimed in &extra.claims {
                self.claims.remove(&(*claimed, number));
            }
        }
        if ticket.has_several_locks() {
            for slot in ticket.locks() {
                self.wide.remove(&(slot, number));
            }
        }
    }
}

fn node_session(session: &Session) -> Option<(u64, SessionId)> {
    match session.kind {
        SessionKind::NodeOf { node } if session.dying.is_none() => Some((node, session.id)),
        _ => None,
    }
}

fn outlives_session(ticket: &Ticket) -> Option<(SessionId, Token)> {
    let session = ticket.session.filter(|_| ticket.bound_session().is_none());
    Some((session?, ticket.number))
}
