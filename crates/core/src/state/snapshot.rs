//! A snapshot: taken in an instant, written piece by piece by somebody else.
//!
//! [`State::snapshot`] clones pointers only. The clone is encoded off the loop, in pieces of
//! bounded size. Format, version 2: the first piece is `HOLDFAST`, the version (u16, little
//! endian) and a postcard [`Head`]; each further piece is a postcard [`Piece`].
//! Indexes are not written: they are rebuilt. Version 1 had a shorter head, and knew no objects.

use super::objects::Stored;
use super::records::{Alone, Clock, Past, Register, Revocation, Session, Ticket};
use super::{Data, State};
use crate::command::{Door, Lease, Mode};
use crate::effect::After;
use crate::history::Event;
use crate::ids::{RequestId, Secret, SessionId, Token};
use crate::text::{Label, LockName, Note, RequestKey};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

pub(super) const MAGIC: &[u8; 8] = b"HOLDFAST";

/// The version written. Every older one is still read.
pub(super) const VERSION: u16 = 2;

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
pub(super) struct Head {
    pub(super) clock: Clock,
    pub(super) counter: u64,
    pub(super) sessions_drawn: u64,
    pub(super) sequence: u64,
    pub(super) events_numbered: u64,
    /// Records of each kind, so that a missing piece is noticed.
    pub(super) records: Records,
    /// From here on since version 2.
    pub(super) changes: u64,
    pub(super) objects: u64,
    pub(super) relabelled: u64,
}

/// The head of version 1.
#[derive(Debug, Deserialize)]
pub(super) struct HeadV1 {
    pub(super) clock: Clock,
    pub(super) counter: u64,
    pub(super) sessions_drawn: u64,
    pub(super) sequence: u64,
    pub(super) events_numbered: u64,
    pub(super) records: Records,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Records {
    pub(super) pasts: u64,
    pub(super) tickets: u64,
    pub(super) sessions: u64,
    pub(super) alone: u64,
    pub(super) register: u64,
    pub(super) events: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Piece {
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
pub(super) struct TicketRecord {
    pub(super) number: Token,
    pub(super) names: Vec<LockName>,
    pub(super) session: Option<SessionId>,
    pub(super) request: Option<RequestId>,
    pub(super) secret: Option<Secret>,
    pub(super) label: Option<Label>,
    pub(super) mode: Mode,
    pub(super) door: Door,
    pub(super) held: bool,
    pub(super) lease: Lease,
    pub(super) due_ms: u64,
    pub(super) joined_ms: u64,
    pub(super) since_ms: u64,
    pub(super) extra: Option<ExtraRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ExtraRecord {
    pub(super) note: Option<Note>,
    pub(super) claims: Vec<Token>,
    pub(super) lock_delay_ms: u64,
    pub(super) upgrades: Option<Token>,
    pub(super) revocation: Option<Revocation>,
    pub(super) after: Option<Arc<[After]>>,
    pub(super) request_key: Option<RequestKey>,
}

impl State {
    /// The state as it is now, for somebody else to write.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { data: self.data.clone() }
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

impl Data {
    /// The bytes of everything that [`Limits::bytes_max`](crate::Limits::bytes_max) counts.
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
