//! A snapshot: taken in an instant, written piece by piece by somebody else.
//!
//! [`State::snapshot`] clones pointers only. The clone is encoded off the loop, in pieces of
//! bounded size. Format, version 2: the first piece is `HOLDFAST`, the version (u16, little
//! endian) and a postcard [`Head`]; each further piece is a postcard [`Piece`].
//! Indexes are not written: they are rebuilt. Version 1 had a shorter head, and knew no objects.

use super::objects::Stored;
use super::records::{Alone, Clock, Extra, Lock, Past, Register, Revocation, Session, Ticket};
use super::{Data, State};
use crate::command::{Door, Lease, Mode};
use crate::effect::After;
use crate::history::{Event, History};
use crate::ids::{RequestId, Secret, SessionId, Token};
use crate::limits::Limits;
use crate::store::{Index, Slot};
use crate::text::{Label, LockName, Note, RequestKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"HOLDFAST";

/// The version written. Every older one is still read.
const VERSION: u16 = 2;

/// Records in a piece: at the longest names, labels and notes a piece stays near 2 MB, usually
/// it is some 20 KB.
const PIECE_LEN: usize = 256;

/// Bytes from which on no further object is added to a piece.
const OBJECTS_BYTES: usize = 1 << 20;

/// Why bytes are not a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadSnapshot {
    /// It does not begin as a snapshot does.
    NotASnapshot,
    /// A later program wrote it.
    UnknownVersion(u16),
    /// A piece can't be read.
    Damaged {
        /// Which one, from 0.
        piece: usize,
    },
    /// Pieces are missing, or contradict each other.
    Incomplete(&'static str),
}

impl fmt::Display for BadSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotASnapshot => f.write_str("not a Holdfast snapshot"),
            Self::UnknownVersion(version) => write!(
                f,
                "snapshot version {version} is newer than this program, which reads up to {VERSION}: upgrade it"
            ),
            Self::Damaged { piece } => write!(f, "piece {piece} of the snapshot is damaged"),
            Self::Incomplete(what) => write!(f, "the snapshot is incomplete: {what}"),
        }
    }
}

impl std::error::Error for BadSnapshot {}

/// The state as it was at one log position.
#[derive(Debug, Clone)]
pub struct Snapshot {
    data: Data,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Head {
    clock: Clock,
    counter: u64,
    sessions_drawn: u64,
    sequence: u64,
    events_numbered: u64,
    /// Records of each kind, so that a missing piece is noticed.
    records: Records,
    /// From here on since version 2.
    changes: u64,
    objects: u64,
    relabelled: u64,
}

/// The head of version 1.
#[derive(Debug, Deserialize)]
struct HeadV1 {
    clock: Clock,
    counter: u64,
    sessions_drawn: u64,
    sequence: u64,
    events_numbered: u64,
    records: Records,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Records {
    pasts: u64,
    tickets: u64,
    sessions: u64,
    alone: u64,
    register: u64,
    events: u64,
}

#[derive(Debug, Serialize, Deserialize)]
enum Piece {
    Pasts(Vec<(LockName, Past)>),
    Tickets(Vec<TicketRecord>),
    Sessions(Vec<Session>),
    Alone(Vec<Alone>),
    Register(Vec<Register>),
    Events(Vec<Event>),
    Objects(Vec<Stored>),
    /// Tickets that got another label, and at which change. They may come before their tickets.
    Relabelled(Vec<(Token, u64)>),
}

/// A ticket with names instead of slots.
#[derive(Debug, Serialize, Deserialize)]
struct TicketRecord {
    number: Token,
    names: Vec<LockName>,
    session: Option<SessionId>,
    request: Option<RequestId>,
    secret: Option<Secret>,
    label: Option<Label>,
    mode: Mode,
    door: Door,
    held: bool,
    lease: Lease,
    due_ms: u64,
    joined_ms: u64,
    since_ms: u64,
    extra: Option<ExtraRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ExtraRecord {
    note: Option<Note>,
    claims: Vec<Token>,
    lock_delay_ms: u64,
    upgrades: Option<Token>,
    revocation: Option<Revocation>,
    after: Option<Arc<[After]>>,
    request_key: Option<RequestKey>,
}

impl State {
    /// The state as it is now, for somebody else to write.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { data: self.data.clone() }
    }

    /// Reads a snapshot from its pieces.
    pub fn load<P: AsRef<[u8]>>(
        pieces: impl IntoIterator<Item = P>,
        limits: Limits,
        hash_key: u64,
    ) -> Result<Self, BadSnapshot> {
        let mut pieces = pieces.into_iter().enumerate();
        let (_, head) = pieces.next().ok_or(BadSnapshot::NotASnapshot)?;
        let mut loader = Loader::new(read_head(head.as_ref())?, &limits, hash_key);
        for (piece, bytes) in pieces {
            let bytes = bytes.as_ref();
            loader.add(postcard::from_bytes(bytes).map_err(|_| BadSnapshot::Damaged { piece })?)?;
        }
        let (data, names) = loader.finish()?;
        let mut state = Self::of(data, names, limits, hash_key);
        state.find_unserved();
        Ok(state)
    }

    /// Lines in which serving had stopped at the bound of one command.
    fn find_unserved(&mut self) {
        let waiting = self.data.locks.iter().filter(|(_, lock)| lock.waiters() > 0);
        let may_serve = |slot| self.next_waiter(slot).is_some_and(|token| self.may_serve(token));
        let unserved =
            waiting.filter(|(slot, _)| may_serve(*slot)).map(|(_, lock)| lock.name.clone());
        self.index.sets.unserved = unserved.collect();
    }
}

fn read_head(bytes: &[u8]) -> Result<Head, BadSnapshot> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(BadSnapshot::NotASnapshot)?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or(BadSnapshot::NotASnapshot)?;
    let damaged = |_| BadSnapshot::Damaged { piece: 0 };
    match u16::from_le_bytes(*version) {
        1 => postcard::from_bytes(rest).map(HeadV1::now).map_err(damaged),
        VERSION => postcard::from_bytes(rest).map_err(damaged),
        version => Err(BadSnapshot::UnknownVersion(version)),
    }
}

impl HeadV1 {
    /// As it would be written now.
    fn now(self) -> Head {
        Head {
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

impl Snapshot {
    /// The pieces in order. Each is made when it is asked for, so that the whole never stands in
    /// memory.
    pub fn pieces(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        let data = &self.data;
        let pasts = data
            .locks
            .iter()
            .filter_map(|(_, lock)| Some((lock.name.clone(), (**lock.past.as_ref()?).clone())));
        let tickets = data.tickets.iter().map(|(_, ticket)| self.ticket_record(ticket));
        let sessions = data.sessions.iter().map(|(_, session)| session.clone());
        let alone = data.alone.iter().map(|(_, alone)| alone.clone());
        let register = data.register.iter().map(|(_, register)| register.clone());
        let events = data.history.iter().cloned();
        std::iter::once_with(|| self.head())
            .chain(in_pieces(pasts, Piece::Pasts))
            .chain(in_pieces(tickets, Piece::Tickets))
            .chain(in_pieces(sessions, Piece::Sessions))
            .chain(in_pieces(alone, Piece::Alone))
            .chain(in_pieces(register, Piece::Register))
            .chain(in_pieces(events, Piece::Events))
            .chain(self.objects_in_pieces())
            .chain(in_pieces(self.relabelled(), Piece::Relabelled))
    }

    /// Objects may be large: a piece of them has a bound in bytes as well.
    fn objects_in_pieces(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        let mut objects = self.data.objects.iter().map(|(_, stored)| stored);
        std::iter::from_fn(move || {
            let mut some = Vec::new();
            let mut bytes = 0_usize;
            while some.len() < PIECE_LEN
                && bytes < OBJECTS_BYTES
                && let Some(stored) = objects.next()
            {
                bytes = bytes.saturating_add(stored.weight());
                some.push(stored.clone());
            }
            (!some.is_empty()).then(|| encode(&Piece::Objects(some)))
        })
    }

    fn relabelled(&self) -> impl Iterator<Item = (Token, u64)> + '_ {
        let tickets = self.data.tickets.iter().map(|(_, ticket)| ticket);
        tickets.map(|ticket| (ticket.number, ticket.relabelled())).filter(|(_, change)| *change > 0)
    }

    fn head(&self) -> Vec<u8> {
        let data = &self.data;
        let head = Head {
            clock: data.clock,
            counter: data.counter,
            sessions_drawn: data.sessions_drawn,
            sequence: data.sequence,
            events_numbered: data.history.next_number,
            records: Records {
                pasts: data.locks.iter().filter(|(_, lock)| lock.past.is_some()).count() as u64,
                tickets: data.tickets.len() as u64,
                sessions: data.sessions.len() as u64,
                alone: data.alone.len() as u64,
                register: data.register.len() as u64,
                events: data.history.iter().count() as u64,
            },
            changes: data.changes,
            objects: data.objects.len() as u64,
            relabelled: self.relabelled().count() as u64,
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(encode(&head));
        bytes
    }

    fn ticket_record(&self, ticket: &Ticket) -> TicketRecord {
        let name = |slot| self.data.locks.get(slot).map(|lock| lock.name.clone());
        TicketRecord {
            number: ticket.number,
            names: ticket.locks().filter_map(name).collect(),
            session: ticket.session,
            request: ticket.request,
            secret: ticket.secret,
            label: ticket.label.clone(),
            mode: ticket.mode,
            door: ticket.door,
            held: ticket.held,
            lease: ticket.lease,
            due_ms: ticket.due_ms,
            joined_ms: ticket.joined_ms,
            since_ms: ticket.since_ms,
            extra: ticket.extra.as_ref().map(|extra| ExtraRecord {
                note: extra.note.clone(),
                claims: extra.claims.clone(),
                lock_delay_ms: extra.lock_delay_ms,
                upgrades: extra.upgrades,
                revocation: extra.revocation.clone(),
                after: extra.after.clone(),
                request_key: extra.request_key.clone(),
            }),
        }
    }
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // Writing to a growing buffer fails only for types that postcard can't write at all.
    postcard::to_allocvec(value).unwrap_or_default()
}

fn in_pieces<T>(
    records: impl Iterator<Item = T>,
    piece: impl Fn(Vec<T>) -> Piece,
) -> impl Iterator<Item = Vec<u8>> {
    let mut records = records;
    std::iter::from_fn(move || {
        let some: Vec<T> = records.by_ref().take(PIECE_LEN).collect();
        (!some.is_empty()).then(|| encode(&piece(some)))
    })
}

/// Puts the pieces together again, in whatever order they come: each record goes where it will
/// stand as soon as it is read.
struct Loader {
    expected: Records,
    seen: Records,
    data: Data,
    names: Index<Lock>,
    numbers: Vec<Token>,
    events: Vec<Event>,
    relabelled: BTreeMap<Token, u64>,
    /// Objects and labels that were announced.
    expected_more: (u64, u64),
}

impl Loader {
    fn new(head: Head, limits: &Limits, hash_key: u64) -> Self {
        let data = Data {
            clock: head.clock,
            counter: head.counter,
            sessions_drawn: head.sessions_drawn,
            sequence: head.sequence,
            changes: head.changes,
            history: History::of(Vec::new(), head.events_numbered),
            ..Data::default()
        };
        // What the head says may be damaged: room is made only for what may be.
        let tickets = usize::try_from(head.records.tickets).unwrap_or(usize::MAX);
        let tickets = tickets.min(limits.tickets_max);
        Self {
            expected: head.records,
            seen: Records::default(),
            data,
            names: Index::with_capacity(tickets, hash_key),
            numbers: Vec::with_capacity(tickets),
            events: Vec::new(),
            relabelled: BTreeMap::new(),
            expected_more: (head.objects, head.relabelled),
        }
    }

    fn add(&mut self, piece: Piece) -> Result<(), BadSnapshot> {
        let Self { seen, data, .. } = self;
        match piece {
            Piece::Pasts(pasts) => {
                count(&mut seen.pasts, &pasts);
                for (name, past) in pasts {
                    self.leave_past(name, past)?;
                }
            }
            Piece::Tickets(tickets) => {
                count(&mut seen.tickets, &tickets);
                for ticket in tickets {
                    self.stand_in_line(ticket)?;
                }
            }
            Piece::Sessions(sessions) => {
                count(&mut seen.sessions, &sessions);
                data.sessions.extend(sessions);
            }
            Piece::Alone(alone) => {
                count(&mut seen.alone, &alone);
                data.alone.extend(alone);
            }
            Piece::Register(register) => {
                count(&mut seen.register, &register);
                data.register.extend(register);
            }
            Piece::Events(events) => {
                count(&mut seen.events, &events);
                self.events.extend(events);
            }
            Piece::Objects(objects) => data.objects.extend(objects),
            Piece::Relabelled(relabelled) => self.relabelled.extend(relabelled),
        }
        Ok(())
    }

    /// The data, and where each name stands in it.
    fn finish(mut self) -> Result<(Data, Index<Lock>), BadSnapshot> {
        self.relabel()?;
        let Self { expected, seen, mut data, names, mut numbers, events, .. } = self;
        let more = (data.objects.len() as u64, self.relabelled.len() as u64);
        if seen != expected || more != self.expected_more {
            return Err(BadSnapshot::Incomplete("the number of records differs"));
        }
        numbers.sort_unstable();
        if numbers.array_windows().any(|[a, b]| a == b) {
            return Err(BadSnapshot::Incomplete("a ticket stands twice"));
        }
        data.history = History::of(events, data.history.next_number);
        data.bytes = data.weight();
        Ok((data, names))
    }

    /// Tells tickets when they got another label.
    fn relabel(&mut self) -> Result<(), BadSnapshot> {
        if self.relabelled.is_empty() {
            return Ok(());
        }
        let of =
            |(slot, ticket): (Slot, &Ticket)| Some((slot, self.relabelled.get(&ticket.number)?));
        let found: Vec<(Slot, u64)> =
            self.data.tickets.iter().filter_map(of).map(|(slot, change)| (slot, *change)).collect();
        if found.len() != self.relabelled.len() {
            return Err(BadSnapshot::Incomplete("a label belongs to no ticket"));
        }
        for (slot, change) in found {
            if let Some(ticket) = self.data.tickets.get_mut(slot) {
                ticket.extra_mut().relabelled = change;
            }
        }
        Ok(())
    }

    fn lock(&mut self, name: LockName) -> Slot {
        let Self { data, names, .. } = self;
        names.get(&data.locks, &name).unwrap_or_else(|| {
            let slot = data.locks.insert(Lock::new(name));
            names.insert(&data.locks, slot);
            slot
        })
    }

    fn leave_past(&mut self, name: LockName, past: Past) -> Result<(), BadSnapshot> {
        let slot = self.lock(name);
        let lock = self.data.locks.get_mut(slot);
        match lock.and_then(|lock| lock.past.replace(Box::new(past))) {
            None => Ok(()),
            Some(_) => Err(BadSnapshot::Incomplete("a lock stands twice")),
        }
    }

    /// Adds a ticket to its locks.
    fn stand_in_line(&mut self, record: TicketRecord) -> Result<(), BadSnapshot> {
        if record.number.0 > self.data.counter {
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
            let Some(lock) = self.data.locks.get_mut(slot) else { continue };
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
            return Err(BadSnapshot::Incomplete("a ticket stands in no line"));
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
        self.data.tickets.insert(ticket);
        Ok(())
    }
}

fn count<T>(seen: &mut u64, records: &[T]) {
    *seen = seen.saturating_add(records.len() as u64);
}

impl Data {
    /// The bytes of everything that [`Limits::bytes_max`] counts.
    pub(crate) fn weight(&self) -> usize {
        let locks = self.locks.iter().map(|(_, lock)| lock.weight());
        let tickets = self.tickets.iter().map(|(_, ticket)| ticket.weight());
        let sessions = self.sessions.iter().map(|(_, session)| session.weight());
        let register = self.register.iter().map(|(_, register)| register.weight());
        let objects = self.objects.iter().map(|(_, stored)| stored.weight());
        locks
            .chain(tickets)
            .chain(sessions)
            .chain(register)
            .chain(objects)
            .fold(0, usize::saturating_add)
    }
}
