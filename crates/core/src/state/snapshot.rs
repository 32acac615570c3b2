//! A snapshot: taken in an instant, written piece by piece by somebody else.
//!
//! [`State::snapshot`] clones pointers only. The clone is encoded off the loop, in pieces of
//! bounded size. Format, version 1: the first piece is `HOLDFAST`, the version (u16, little
//! endian) and a postcard [`Head`]; each further piece is a postcard [`Piece`].
//! Indexes are not written: they are rebuilt.

use super::records::{Alone, Clock, Extra, Lock, Past, Register, Revocation, Session, Ticket};
use super::{Data, State};
use crate::command::{Door, Lease, Mode};
use crate::effect::After;
use crate::history::{Event, History};
use crate::ids::{RequestId, Secret, SessionId, Token};
use crate::limits::Limits;
use crate::store::{Index, Slab, Slot};
use crate::text::{Label, LockName, Note, RequestKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"HOLDFAST";

/// The version written. Every older one is still read.
const VERSION: u16 = 1;

/// Records in a piece: at the longest names, labels and notes a piece stays near 2 MB, usually
/// it is some 20 KB.
const PIECE_LEN: usize = 256;

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
        let mut loader = Loader::new(read_head(head.as_ref())?);
        for (piece, bytes) in pieces {
            let bytes = bytes.as_ref();
            loader.add(postcard::from_bytes(bytes).map_err(|_| BadSnapshot::Damaged { piece })?);
        }
        let mut state = Self::of(loader.finish()?, limits, hash_key);
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
    match u16::from_le_bytes(*version) {
        VERSION => postcard::from_bytes(rest).map_err(|_| BadSnapshot::Damaged { piece: 0 }),
        version => Err(BadSnapshot::UnknownVersion(version)),
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

/// Puts the pieces together again.
struct Loader {
    head: Head,
    seen: Records,
    pasts: BTreeMap<LockName, Past>,
    tickets: Vec<TicketRecord>,
    sessions: Slab<Session>,
    alone: Slab<Alone>,
    register: Slab<Register>,
    events: Vec<Event>,
}

impl Loader {
    fn new(head: Head) -> Self {
        Self {
            head,
            seen: Records::default(),
            pasts: BTreeMap::new(),
            tickets: Vec::new(),
            sessions: Slab::default(),
            alone: Slab::default(),
            register: Slab::default(),
            events: Vec::new(),
        }
    }

    fn add(&mut self, piece: Piece) {
        match piece {
            Piece::Pasts(pasts) => {
                self.pasts.extend(pasts);
                self.seen.pasts = self.pasts.len() as u64;
            }
            Piece::Tickets(tickets) => {
                self.tickets.extend(tickets);
                self.seen.tickets = self.tickets.len() as u64;
            }
            Piece::Sessions(sessions) => {
                self.seen.sessions = add_all(&mut self.sessions, sessions);
            }
            Piece::Alone(alone) => self.seen.alone = add_all(&mut self.alone, alone),
            Piece::Register(register) => {
                self.seen.register = add_all(&mut self.register, register);
            }
            Piece::Events(events) => {
                self.events.extend(events);
                self.seen.events = self.events.len() as u64;
            }
        }
    }

    fn finish(self) -> Result<Data, BadSnapshot> {
        let Self { head, seen, pasts, mut tickets, sessions, alone, register, events } = self;
        if seen != head.records {
            return Err(BadSnapshot::Incomplete("the number of records differs"));
        }
        let mut data = Data {
            clock: head.clock,
            counter: head.counter,
            sessions_drawn: head.sessions_drawn,
            sequence: head.sequence,
            bytes: 0,
            locks: Slab::default(),
            tickets: Slab::default(),
            sessions,
            alone,
            register,
            history: History::of(events, head.events_numbered),
        };
        let mut names = Index::new(0);
        for (name, past) in pasts {
            let slot = data.locks.insert(Lock { past: Some(Box::new(past)), ..Lock::new(name) });
            names.insert(&data.locks, slot);
        }
        tickets.sort_unstable_by_key(|ticket| ticket.number);
        if tickets.windows(2).any(|pair| matches!(pair, [a, b] if a.number == b.number)) {
            return Err(BadSnapshot::Incomplete("a ticket stands twice"));
        }
        for ticket in tickets {
            stand_in_line(&mut data, &mut names, ticket)?;
        }
        data.bytes = data.weight();
        Ok(data)
    }
}

fn add_all<T: Clone>(slab: &mut Slab<T>, records: Vec<T>) -> u64 {
    for record in records {
        slab.insert(record);
    }
    slab.len() as u64
}

/// Adds a ticket to its locks; tickets come in the order of their numbers.
fn stand_in_line(
    data: &mut Data,
    names: &mut Index<Lock>,
    record: TicketRecord,
) -> Result<(), BadSnapshot> {
    if record.number.0 > data.counter {
        return Err(BadSnapshot::Incomplete("a ticket is above the counter"));
    }
    let mut locks = Vec::with_capacity(record.names.len());
    for name in &record.names {
        let slot = names.get(&data.locks, name).unwrap_or_else(|| {
            let slot = data.locks.insert(Lock::new(name.clone()));
            names.insert(&data.locks, slot);
            slot
        });
        let Some(lock) = data.locks.get_mut(slot) else { continue };
        lock.head = lock.head.or(Some(record.number));
        lock.line_len = lock.line_len.saturating_add(1);
        if record.held {
            lock.holders = lock.holders.saturating_add(1);
            lock.last_served = record.number;
            lock.exclusive = record.mode == Mode::Exclusive;
        }
        if let Mode::Permit { of } = record.mode {
            lock.permits = Some(of);
        }
        locks.push(slot);
    }
    let mut locks = locks.into_iter();
    let Some(lock) = locks.next() else {
        return Err(BadSnapshot::Incomplete("a ticket stands in no line"));
    };
    let more_locks: Vec<Slot> = locks.collect();
    let extra = record.extra.map(|extra| Extra {
        note: extra.note,
        more_locks: Vec::new(),
        claims: extra.claims,
        lock_delay_ms: extra.lock_delay_ms,
        upgrades: extra.upgrades,
        revocation: extra.revocation,
        after: extra.after,
        request_key: extra.request_key,
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
    data.tickets.insert(ticket);
    Ok(())
}

impl Data {
    /// The bytes of everything that [`Limits::bytes_max`] counts.
    pub(crate) fn weight(&self) -> usize {
        let locks = self.locks.iter().map(|(_, lock)| lock.weight());
        let tickets = self.tickets.iter().map(|(_, ticket)| ticket.weight());
        let sessions = self.sessions.iter().map(|(_, session)| session.weight());
        let register = self.register.iter().map(|(_, register)| register.weight());
        locks.chain(tickets).chain(sessions).chain(register).fold(0, usize::saturating_add)
    }
}
