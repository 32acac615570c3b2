//! Queries. They change nothing and need not go through the log.

use super::Lines;
use super::claims::BlockedBy;
use super::history::Event;
use super::records::{Lock, Revocation, Ticket};
use crate::command::{Door, Lease, Mode, SessionKind, SessionRef};
use crate::containers::Slot;
use crate::effect::{Effect, EndReason, Ending, Names};
use crate::ids::{SessionId, Token};
use crate::text::{Label, LockName, Note};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

/// How many holders `why` shows for one waiter: nobody would read more.
const HOLDERS_SHOWN: usize = 16;

/// One lock: its holders, its waiters, and what earlier holders left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockView {
    /// Its name.
    pub name: LockName,
    /// The number of permits; `None` if the line is exclusive/shared.
    pub permits: Option<u32>,
    /// The holders, in order, as many as requested.
    pub holders: Vec<TicketView>,
    /// How many holders there are.
    pub holding: usize,
    /// The waiters, in order, as many as requested.
    pub waiters: Vec<TicketView>,
    /// How many waiters there are.
    pub waiting: usize,
    /// How the last holder ended, while anyone is in line.
    pub last: Option<Arc<Ending>>,
    /// A death that no holder has recovered from.
    pub needs_recovery: Option<Arc<Ending>>,
    /// Until when a death holds up the line.
    pub delayed_until_ms: Option<u64>,
}

/// One ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketView {
    /// Its number.
    pub token: Token,
    /// All of its names.
    pub names: Names,
    /// Its label.
    pub label: Option<Label>,
    /// Its session, if it has one.
    pub session: Option<SessionId>,
    /// Exclusive, shared or permit.
    pub mode: Mode,
    /// What keeps it alive once it is served.
    pub lease: Lease,
    /// The door through which it came.
    pub door: Door,
    /// Whether it is being served.
    pub held: bool,
    /// How long it has been held, or has waited.
    pub for_ms: u64,
    /// When its lease or its wait ends.
    pub due_ms: Option<u64>,
    /// Its note.
    pub note: Option<Note>,
    /// Tokens that it keeps while it waits.
    pub claims: Vec<Token>,
    /// By when it was asked to release.
    pub revoked_until_ms: Option<u64>,
}

/// Some locks, in order of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockPage {
    /// The locks of this page.
    pub locks: Vec<LockView>,
    /// Where the next page begins; `None` if this is the last.
    pub next_after: Option<LockName>,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// Its id.
    pub id: SessionId,
    /// Its label.
    pub label: Option<Label>,
    /// A client's or a node's.
    pub kind: SessionKind,
    /// How long it may stay silent.
    pub ttl_ms: u64,
    /// When it was opened.
    pub opened_ms: u64,
    /// Its tickets, waiting or held, as many as requested. Those with their own lease outlive it
    /// once they are held.
    pub tickets: Vec<Token>,
    /// Set while its tickets are being ended.
    pub ended: Option<EndReason>,
}

/// Totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Locks that are held, waited for or remembered.
    pub locks: usize,
    /// Tickets that hold a lock.
    pub holders: usize,
    /// Tickets in line.
    pub waiters: usize,
    /// Sessions.
    pub sessions: usize,
    /// Locks that need recovery.
    pub deaths: usize,
    /// Keys of the fenced register.
    pub register_keys: usize,
    /// Hashes and lists.
    pub objects: usize,
    /// Znodes, apart from the built-in ones.
    pub nodes: usize,
    /// Request ids without a session.
    pub requests_alone: usize,
    /// Bytes of everything that [`Limits::bytes_max`](crate::Limits::bytes_max) bounds.
    pub bytes: usize,
    /// The last ticket number drawn.
    pub counter: u64,
}

impl Lines {
    /// One lock, with up to `tickets_max` of its holders and as many of its waiters.
    pub(crate) fn lock_view(&self, name: &LockName, tickets_max: usize) -> Option<LockView> {
        let slot = self.lock_slot(name)?;
        Some(self.view_lock(slot, self.data.locks.get(slot)?, tickets_max))
    }

    fn view_lock(&self, slot: Slot, lock: &Lock, tickets_max: usize) -> LockView {
        let lines = &self.index.sets.lines;
        let view = |token| self.ticket_view(token);
        let past = lock.past.as_ref();
        LockView {
            name: lock.name.clone(),
            permits: lock.permits(),
            holders: lines.holders(slot, lock).take(tickets_max).filter_map(view).collect(),
            holding: lock.holders as usize,
            waiters: lines.waiters(slot, lock).take(tickets_max).filter_map(view).collect(),
            waiting: lock.waiters() as usize,
            last: past.and_then(|past| past.last.clone()),
            needs_recovery: lock.death().map(|death| death.ending.clone()),
            delayed_until_ms: lock.delayed_until_ms(),
        }
    }

    /// One ticket, waiting or held.
    pub(crate) fn ticket_view(&self, token: Token) -> Option<TicketView> {
        let ticket = self.ticket(token)?;
        let from_ms = if ticket.held { ticket.since_ms } else { ticket.joined_ms };
        Some(TicketView {
            token,
            names: self.names_of(ticket),
            label: self.label_of(ticket),
            session: ticket.session,
            mode: ticket.mode,
            lease: ticket.lease,
            door: ticket.door,
            held: ticket.held,
            for_ms: self.data.clock.now_ms.saturating_sub(from_ms),
            due_ms: ticket.due(),
            note: ticket.note().cloned(),
            claims: ticket.claims().to_vec(),
            revoked_until_ms: ticket.revocation().map(|revocation| revocation.until_ms),
        })
    }

    /// The tickets from this door with this label among the first `looked_through_max` of a lock's
    /// line, in order; and whether each is held.
    pub(crate) fn labelled(
        &self,
        name: &LockName,
        door: Door,
        label: &Label,
        looked_through_max: usize,
    ) -> Vec<(Token, bool)> {
        let Some(slot) = self.lock_slot(name) else { return Vec::new() };
        let Some(lock) = self.data.locks.get(slot) else { return Vec::new() };
        let lines = &self.index.sets.lines;
        let line = lines.holders(slot, lock).chain(lines.waiters(slot, lock));
        let found = line.take(looked_through_max).filter_map(|token| {
            let ticket = self.ticket(token)?;
            let is_it = ticket.door == door && ticket.label.as_ref() == Some(label);
            is_it.then_some((token, ticket.held))
        });
        found.collect()
    }

    /// The request to release that a holder was sent, in case it missed it.
    pub(crate) fn revocation_asked(&self, token: Token) -> Option<Effect> {
        let ticket = self.ticket(token)?;
        let Revocation { by, reason, until_ms, force } = ticket.revocation()?.clone();
        let name = self.data.locks.get(ticket.lock)?.name.clone();
        let session = ticket.session;
        Some(Effect::RevocationAsked { token, session, name, by, reason, until_ms, force })
    }

    /// Up to `limit` locks whose names begin with `prefix`, after `after`, each with its first
    /// holder.
    pub(crate) fn list(&self, prefix: &[u8], after: Option<&LockName>, limit: usize) -> LockPage {
        let mut names = self.index.order.page(prefix, after, limit.saturating_add(1));
        let more = names.len() > limit;
        names.truncate(limit);
        let next_after = names.last().filter(|_| more).cloned();
        let locks = names.iter().filter_map(|name| self.lock_view(name, 1)).collect();
        LockPage { locks, next_after }
    }

    /// Up to `limit` sessions after `after`, each with up to `tickets_max` of its tickets.
    pub(crate) fn sessions(
        &self,
        after: Option<SessionId>,
        limit: usize,
        tickets_max: usize,
    ) -> Vec<SessionView> {
        let from = after.map_or(Unbounded, Excluded);
        let ids = self.index.sets.session_ids.range((from, Unbounded)).take(limit);
        ids.filter_map(|id| self.session_view(*id, tickets_max)).collect()
    }

    /// One session, with up to `tickets_max` of its tickets: first those that end with it.
    pub(crate) fn session_view(&self, id: SessionId, tickets_max: usize) -> Option<SessionView> {
        let session = self.session(id)?;
        let all = (id, Token(0))..=(id, Token(u64::MAX));
        let sets = &self.index.sets;
        let own = sets.by_session.range(all.clone()).chain(sets.outlive_session.range(all));
        Some(SessionView {
            id,
            label: session.label.clone(),
            kind: session.kind,
            ttl_ms: session.ttl_ms,
            opened_ms: session.opened_ms,
            tickets: own.take(tickets_max).map(|(_, token)| *token).collect(),
            ended: session.dying.map(|dying| dying.how),
        })
    }

    /// Every living session, with its TTL.
    pub(crate) fn session_ttls(&self) -> impl Iterator<Item = (SessionId, u64)> {
        let living = self.data.sessions.iter().filter(|(_, session)| session.dying.is_none());
        living.map(|(_, session)| (session.id, session.ttl_ms))
    }

    /// Whether a session is alive and the secret is right.
    pub(crate) fn session_lives(&self, session: &SessionRef) -> bool {
        self.check_session(session).is_ok()
    }

    /// Whether the secret is right; `None` if the session is not known here. A session's secret
    /// never changes, and its id is never reused.
    pub(crate) fn session_owner(&self, session: &SessionRef) -> Option<bool> {
        self.session(session.id).map(|known| known.secret == session.secret)
    }

    /// The events of one lock that are still in the ring, newest first.
    pub(crate) fn history(&self, name: &LockName) -> impl Iterator<Item = &Event> {
        self.index.history.events(&self.data.history, name)
    }

    /// All events that are still in the ring, oldest first.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.data.history.iter()
    }

    /// Totals. Objects are counted by their store.
    pub(crate) fn counts(&self) -> Counts {
        let holders = self.index.sets.held;
        Counts {
            locks: self.data.locks.len(),
            holders,
            waiters: self.data.tickets.len().saturating_sub(holders),
            sessions: self.data.sessions.len(),
            deaths: self.index.sets.deaths.len(),
            register_keys: self.data.register.len(),
            objects: 0,
            nodes: 0,
            requests_alone: self.data.alone.len(),
            bytes: self.counted(self.weight),
            counter: self.data.counter,
        }
    }

    /// The length of the longest line, holders included.
    pub(crate) fn longest_line(&self) -> usize {
        match self.index.sets.lines.longest() {
            0 => usize::from(self.data.tickets.len() > 0),
            longest => longest,
        }
    }

    /// The tickets that a waiter waits for in one line, as `why` shows them.
    pub(super) fn in_front(&self, ticket: &Ticket, slot: Slot) -> Vec<Token> {
        let Some(lock) = self.data.locks.get(slot) else { return Vec::new() };
        let way = self.way(ticket, slot, lock);
        let holders = self.index.sets.lines.holders(slot, lock).take(HOLDERS_SHOWN);
        let in_way =
            holders.filter(|holder| way != BlockedBy::Free && way != BlockedBy::AllBut(*holder));
        let first = Token(lock.last_served.0.saturating_add(1));
        let wide = self.index.sets.wide.range((slot, first)..(slot, ticket.number));
        in_way.chain(wide.map(|(_, token)| *token)).collect()
    }

    /// Which holders are in the way of a waiter, or of one ahead of it. There are none for a reader
    /// that waits for a lock-delay, or behind one that waits elsewhere.
    fn way(&self, ticket: &Ticket, slot: Slot, lock: &Lock) -> BlockedBy {
        if let Some(of) = lock.permits() {
            return if lock.holders >= of { BlockedBy::All } else { BlockedBy::Free };
        }
        let waiters = self.index.sets.lines.waiters(slot, lock).take(self.limits.claim_steps_max);
        let up_to_it = waiters.take_while(|token| *token <= ticket.number);
        up_to_it.fold(BlockedBy::of(lock), |way, token| way.with(self.ticket(token)))
    }
}
