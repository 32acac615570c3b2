//! The state machine: commands in, effects out.
//!
//! [`Data`] is the truth and what a snapshot holds; [`Indexes`] say where to find things in it
//! and are rebuilt from it. Each file beside this one is one part of what can be asked:
//!
//! - `acquire`: draw a ticket, enter the lines, upgrade, downgrade
//! - `serve`: who is next, and the grant
//! - `end`: the one place where a ticket ends, whatever the reason
//! - `holder`: release, cancel, renew, persist, note, recovered
//! - `revoke`: ask a holder to let go, or break the lock
//! - `session`: open, close, expire, and the sweep of a dead session's tickets
//! - `request`: one effect for a retried request; `fingerprint`: what it asked for
//! - `claims`: circles of waits are found and refused
//! - `time`: what is due when logical time moves
//! - `register`: the fence inside Holdfast
//! - `transact`: several keys are written at once; `steps`: what each write comes to
//! - `objects`: hashes and lists
//! - `restore`: a backup becomes the beginning of a new cluster

mod acquire;
mod claims;
mod end;
mod fingerprint;
mod holder;
mod indexes;
mod invariants;
mod keys;
mod lines;
mod load;
mod objects;
mod query;
pub(crate) mod records;
mod register;
mod request;
mod restore;
mod revoke;
mod serve;
mod session;
mod snapshot;
mod steps;
mod time;
mod transact;
mod why;

pub use keys::{Key, KeyPage, ObjectKey, TextKey};
pub use load::SnapshotCheck;
pub use query::{Counts, LockPage, LockView, SessionView, TicketView};
pub use restore::{CannotRestore, Restored};
pub use snapshot::{BadSnapshot, NotEncoded, Snapshot};
pub use why::{Circle, Why, WhyLink};

use crate::command::{Command, Proposal, Request};
use crate::effect::{Answer, Effect, Names, Taken};
use crate::history::{Event, History, What};
use crate::ids::{SessionId, Token};
use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::store::{Index, Slab, Slot};
use crate::text::{Label, LockName};
use indexes::Indexes;
use objects::Stored;
use records::{Alone, Clock, Lock, Register, Session, Ticket, Weight};

/// From this behaviour level on, a request is known by what it asked for, everything is weighed,
/// the history is bounded in bytes, and a release finds its ticket's end in all of it.
const REQUESTS_LEVEL: u16 = 3;

/// From this behaviour level on, sessions may say which node they are of, and leases may wait for a
/// confirmation. Below it no member asks for either.
const CONFIRMED_LEVEL: u16 = 4;

/// All locks, sessions and tickets of a cluster, as of one log position.
#[derive(Debug)]
pub struct State {
    data: Data,
    index: Indexes,
    limits: Limits,
    /// The behaviour level in force.
    level: u16,
}

/// What is replicated: the same on every node at the same log position. Cloning it is cheap, and
/// a clone is a snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Data {
    /// Logical time, the leader's wall clock and the term of the entry being applied.
    pub(crate) clock: Clock,
    /// The last ticket number drawn.
    pub(crate) counter: u64,
    /// The last session id drawn.
    pub(crate) sessions_drawn: u64,
    /// Orders deaths, ends of sessions and forgotten requests among themselves.
    pub(crate) sequence: u64,
    /// The last number drawn for a change to an object or to a label.
    pub(crate) changes: u64,
    /// What everything takes; see [`Limits::bytes_max`].
    pub(crate) weight: Weight,
    pub(crate) locks: Slab<Lock>,
    pub(crate) tickets: Slab<Ticket>,
    pub(crate) sessions: Slab<Session>,
    pub(crate) alone: Slab<Alone>,
    pub(crate) register: Slab<Register>,
    pub(crate) objects: Slab<Stored>,
    pub(crate) history: History,
}

impl State {
    /// An empty state. `hash_key` may differ between replicas and should be hard to guess.
    pub fn new(limits: Limits, hash_key: u64) -> Self {
        Self::of(Data::default(), Index::new(hash_key), limits, hash_key)
    }

    fn of(data: Data, names: Index<Lock>, limits: Limits, hash_key: u64) -> Self {
        let index = Indexes::of(&data, names, hash_key);
        Self { data, index, limits, level: CONFIRMED_LEVEL }
    }

    /// Does everything as programs of this behaviour level do. A new state does as this program
    /// does; whoever applies entries of a cluster says which level is in force there.
    pub fn set_level(&mut self, level: u16) {
        self.level = level;
    }

    /// Applies one proposal of an entry. What must be heard by others than the asker is added to
    /// `effects`.
    pub fn apply(&mut self, proposal: Proposal, effects: &mut Vec<Effect>) -> Taken {
        let Proposal { from, request, command } = proposal;
        if let Some(from) = from
            && let Some(not_taken) = self.not_taken(from)
        {
            return not_taken;
        }
        Taken::Answered(match request {
            None => self.decide(command, None, effects),
            Some(request) => self.decide_once(request, command, effects),
        })
    }

    /// The table of contents of everything that the core does.
    fn decide(
        &mut self,
        command: Command,
        request: Option<&Request>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        match command {
            Command::Tick(tick) => Ok(self.tick(tick, effects)),
            Command::OpenSession(open) => self.open_session(open, effects),
            Command::CloseSession(session) => self.close_session(session, effects),
            Command::ExpireSession { session, decided_in } => {
                self.expire_session(session, decided_in, effects)
            }
            Command::Acquire(acquire) => self.acquire(acquire, request, effects),
            Command::Upgrade { target, proof, wait, claims } => {
                self.upgrade(&target, &proof, wait, claims, request, effects)
            }
            Command::Downgrade { target, proof } => self.downgrade(&target, &proof, effects),
            Command::Cancel { target, proof } => self.cancel(&target, &proof, effects),
            Command::Release { target, proof } => self.release(&target, &proof, effects),
            Command::Renew { target, proof, ttl_ms } => self.renew(&target, &proof, ttl_ms),
            Command::Persist { target, proof } => self.persist(&target, &proof),
            Command::Note { target, proof, note } => self.note(&target, &proof, note, effects),
            Command::Recovered { target, proof } => self.recovered(&target, &proof, effects),
            Command::Revoke(revoke) => self.revoke(revoke, effects),
            Command::Force { name, token, by, reason } => {
                self.force(&name, token, by, reason, effects)
            }
            Command::Outcome(request) => self.outcome(&request),
            Command::Put { key, value, token, mode } => self.put(key, value, token, mode),
            Command::Raise { key, token, mode } => self.raise(key, token, mode),
            Command::Transact(transaction) => self.transact(transaction, effects),
        }
    }

    /// Logical time in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.data.clock.now_ms
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
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

    /// The names of a ticket, to be shown.
    fn names_of(&self, ticket: &Ticket) -> Names {
        let name = |slot| self.data.locks.get(slot).map(|lock| lock.name.clone());
        match name(ticket.lock) {
            Some(only) if !ticket.has_several_locks() => Names::One(only),
            _ => Names::Many(ticket.locks().filter_map(name).collect()),
        }
    }

    /// What a ticket calls itself: its own label, or else its session's.
    fn label_of(&self, ticket: &Ticket) -> Option<Label> {
        match (&ticket.label, ticket.session) {
            (Some(label), _) => Some(label.clone()),
            (None, Some(session)) => self.session(session)?.label.clone(),
            (None, None) => None,
        }
    }

    fn record(&mut self, name: LockName, token: Token, label: Option<Label>, what: What) {
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

    /// Changes a lock and keeps count of its bytes.
    fn change_lock<T>(&mut self, slot: Slot, change: impl FnOnce(&mut Lock) -> T) -> Option<T> {
        let lock = self.data.locks.get_mut(slot)?;
        let before = lock.weight();
        let result = change(lock);
        let after = lock.weight();
        self.weigh(before, after);
        Some(result)
    }

    /// Changes a ticket and keeps count of its bytes.
    fn change_ticket<T>(&mut self, slot: Slot, change: impl FnOnce(&mut Ticket) -> T) -> Option<T> {
        let ticket = self.data.tickets.get_mut(slot)?;
        let before = ticket.weight();
        let result = change(ticket);
        let after = ticket.weight();
        self.weigh(before, after);
        Some(result)
    }

    /// Changes a session and keeps count of its bytes.
    fn change_session<T>(
        &mut self,
        slot: Slot,
        change: impl FnOnce(&mut Session) -> T,
    ) -> Option<T> {
        let session = self.data.sessions.get_mut(slot)?;
        let before = session.weight();
        let result = change(session);
        let after = session.weight();
        self.weigh(before, after);
        Some(result)
    }

    fn weigh(&mut self, before: Weight, after: Weight) {
        self.data.weight = self.data.weight.and(after).without(before);
    }

    /// How many bytes a weight counts.
    fn counted(&self, weight: Weight) -> usize {
        let rest = if self.level >= REQUESTS_LEVEL { weight.rest } else { 0 };
        weight.texts.saturating_add(rest)
    }
}

/// How many tickets one command may still serve or end.
struct Steps(usize);

impl Steps {
    fn take(&mut self) -> bool {
        let any = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        any
    }
}
