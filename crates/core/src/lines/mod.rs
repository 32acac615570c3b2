//! Lines of tickets: everything that a lock is, and nothing of what doors keep besides locks.
//!
//! [`Data`] is the replicated state, which snapshots contain; [`Indexes`] locate things in it and
//! are rebuilt from it. Each file next to this one is one part of what can be asked:
//!
//! - `acquire`: draw a ticket, enter the lines, upgrade, downgrade
//! - `serve`: who is next, and the grant
//! - `end`: the one place where a ticket ends, whatever the reason
//! - `holder`: release, cancel, renew, persist, note, recovered
//! - `revoke`: ask a holder to release, or break the lock
//! - `session`: open, close, expire, and the sweep of a dead session's tickets
//! - `request`: a retried request has one effect; `fingerprint`: what it asked for
//! - `claims`: finds and refuses cycles of waits
//! - `time`: what is due when logical time moves
//! - `register`: the fence inside Holdfast
//! - `restore`: turns a backup into the start of a new cluster
//! - `query`, `why`: queries, which change nothing
//!
//! Lines know nothing of stores. A store uses them through [`StoreAccess`] only. Time, limits and
//! the total weight are kept here, because stores and lines share them.

mod acquire;
mod claims;
mod end;
pub(crate) mod fingerprint;
pub(crate) mod history;
mod holder;
mod indexes;
mod invariants;
mod order;
mod query;
pub(crate) mod records;
mod register;
mod request;
mod restore;
mod revoke;
mod serve;
mod session;
mod store_access;
mod time;
mod why;

pub(crate) use acquire::TicketSpec;
pub(crate) use invariants::{check_index, ensure};
pub use query::{Counts, LockPage, LockView, SessionView, TicketView};
pub(crate) use request::Recalled;
pub use restore::{CannotRestore, Restored};
pub(crate) use store_access::{HolderView, LineView, StoreAccess};
pub use why::{Cycle, Why, WhyLink};

use crate::containers::{Index, Slab, Slot};
use crate::effect::Names;
use crate::ids::{SessionId, Token};
use crate::level::{NEWEST_LEVEL, REQUESTS_LEVEL};
use crate::limits::Limits;
use crate::text::{Label, LockName};
use crate::weight::Weight;
use history::{Event, EventKind, History};
use indexes::Indexes;
use records::{Alone, Clock, Lock, Register, Session, Ticket};

/// All locks, tickets and sessions.
#[derive(Debug)]
pub(crate) struct Lines {
    data: Data,
    index: Indexes,
    limits: Limits,
    /// The behaviour level in force.
    level: u16,
    /// What everything takes, in lines and stores; see [`Limits::bytes_max`].
    weight: Weight,
}

/// What is replicated: the same on every node at the same log position. Cloning is cheap, and a
/// clone is a snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Data {
    /// Logical time, the leader's wall clock and the term of the entry being applied.
    pub(crate) clock: Clock,
    /// The last ticket number drawn.
    pub(crate) counter: u64,
    /// The last session id drawn.
    pub(crate) sessions_drawn: u64,
    /// Orders deaths, ends of sessions and forgotten requests among each other.
    pub(crate) sequence: u64,
    pub(crate) locks: Slab<Lock>,
    pub(crate) tickets: Slab<Ticket>,
    pub(crate) sessions: Slab<Session>,
    pub(crate) alone: Slab<Alone>,
    pub(crate) register: Slab<Register>,
    pub(crate) history: History,
}

impl Data {
    /// What all of it takes.
    fn weigh(&self) -> Weight {
        let locks = self.locks.iter().map(|(_, lock)| lock.weight());
        let tickets = self.tickets.iter().map(|(_, ticket)| ticket.weight());
        let sessions = self.sessions.iter().map(|(_, session)| session.weight());
        let alone = self.alone.iter().map(|(_, alone)| alone.weight());
        let register = self.register.iter().map(|(_, register)| register.weight());
        let all = locks.chain(tickets).chain(sessions).chain(alone).chain(register);
        all.fold(Weight::NONE, Weight::and)
    }
}

impl Lines {
    pub(crate) fn new(limits: Limits, hash_key: u64) -> Self {
        Self::of(Data::default(), Index::new(hash_key), limits, hash_key)
    }

    /// From a snapshot; `names` is the index of its locks.
    pub(crate) fn load(data: Data, names: Index<Lock>, limits: Limits, hash_key: u64) -> Self {
        let mut lines = Self::of(data, names, limits, hash_key);
        lines.find_unserved();
        lines
    }

    fn of(data: Data, names: Index<Lock>, limits: Limits, hash_key: u64) -> Self {
        let index = Indexes::of(&data, names, hash_key);
        let weight = data.weigh();
        Self { data, index, limits, level: NEWEST_LEVEL, weight }
    }

    /// Finds lines in which serving had stopped at the bound of one command.
    fn find_unserved(&mut self) {
        let waiting = self.data.locks.iter().filter(|(_, lock)| lock.waiters() > 0);
        let may_serve = |slot| self.next_waiter(slot).is_some_and(|token| self.may_serve(token));
        let unserved =
            waiting.filter(|(slot, _)| may_serve(*slot)).map(|(_, lock)| lock.name.clone());
        self.index.sets.unserved = unserved.collect();
    }

    /// What a snapshot contains.
    pub(crate) fn data(&self) -> &Data {
        &self.data
    }

    pub(crate) fn level(&self) -> u16 {
        self.level
    }

    pub(crate) fn set_level(&mut self, level: u16) {
        self.level = level;
    }

    /// Logical time in milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.data.clock.now_ms
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What everything takes, in lines and stores.
    pub(crate) fn weight(&self) -> Weight {
        self.weight
    }

    /// What everything here takes, counted again.
    pub(crate) fn weigh_all(&self) -> Weight {
        self.data.weigh()
    }

    fn ticket_slot(&self, token: Token) -> Option<Slot> {
        self.index.numbers.get(&self.data.tickets, &token)
    }

    fn ticket(&self, token: Token) -> Option<&Ticket> {
        self.data.tickets.get(self.ticket_slot(token)?)
    }

    fn lock_slot(&self, name: &LockName) -> Option<Slot> {
        self.index.names.get(&self.data.locks, name)
    }

    fn session_slot(&self, id: SessionId) -> Option<Slot> {
        self.index.sessions.get(&self.data.sessions, &id)
    }

    fn session(&self, id: SessionId) -> Option<&Session> {
        self.data.sessions.get(self.session_slot(id)?)
    }

    /// The names of a ticket, for display.
    fn names_of(&self, ticket: &Ticket) -> Names {
        let name = |slot| self.data.locks.get(slot).map(|lock| lock.name.clone());
        match name(ticket.lock) {
            Some(only) if !ticket.has_several_locks() => Names::One(only),
            _ => Names::Many(ticket.locks().filter_map(name).collect()),
        }
    }

    /// A ticket's label: its own, or else its session's.
    fn label_of(&self, ticket: &Ticket) -> Option<Label> {
        match (&ticket.label, ticket.session) {
            (Some(label), _) => Some(label.clone()),
            (None, Some(session)) => self.session(session)?.label.clone(),
            (None, None) => None,
        }
    }

    fn record(&mut self, name: LockName, token: Token, label: Option<Label>, what: EventKind) {
        let event = Event {
            number: 0,
            at_ms: self.data.clock.now_ms,
            wall_ms: self.data.clock.wall_ms,
            name,
            token,
            label,
            what,
            previous: None,
        };
        let bytes_max =
            if self.level >= REQUESTS_LEVEL { self.limits.history_bytes_max } else { usize::MAX };
        let bounds = (self.limits.history_max, bytes_max);
        self.index.history.add(&mut self.data.history, event, bounds);
    }

    fn next_in_sequence(&mut self) -> u64 {
        self.data.sequence = self.data.sequence.saturating_add(1);
        self.data.sequence
    }

    /// Changes a lock and keeps track of its bytes.
    fn change_lock<T>(&mut self, slot: Slot, change: impl FnOnce(&mut Lock) -> T) -> Option<T> {
        let lock = self.data.locks.get_mut(slot)?;
        let before = lock.weight();
        let result = change(lock);
        let after = lock.weight();
        self.weigh_change(before, after);
        Some(result)
    }

    /// Changes a ticket and keeps track of its bytes.
    fn change_ticket<T>(&mut self, slot: Slot, change: impl FnOnce(&mut Ticket) -> T) -> Option<T> {
        let ticket = self.data.tickets.get_mut(slot)?;
        let before = ticket.weight();
        let result = change(ticket);
        let after = ticket.weight();
        self.weigh_change(before, after);
        Some(result)
    }

    /// Changes a session and keeps track of its bytes.
    fn change_session<T>(
        &mut self,
        slot: Slot,
        change: impl FnOnce(&mut Session) -> T,
    ) -> Option<T> {
        let session = self.data.sessions.get_mut(slot)?;
        let before = session.weight();
        let result = change(session);
        let after = session.weight();
        self.weigh_change(before, after);
        Some(result)
    }

    fn weigh_change(&mut self, before: Weight, after: Weight) {
        self.weight = self.weight.and(after).without(before);
    }

    /// How many bytes of a weight count at the current level.
    fn counted(&self, weight: Weight) -> usize {
        weight.counted(self.level)
    }
}

/// How many tickets one command may still serve or end.
pub(crate) struct StepBudget(usize);

impl StepBudget {
    pub(crate) fn new(max: usize) -> Self {
        Self(max)
    }

    pub(crate) fn take(&mut self) -> bool {
        let any = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        any
    }
}
