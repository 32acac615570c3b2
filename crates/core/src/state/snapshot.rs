//! Snapshots: taken in an instant, and written piece by piece on another thread.
//!
//! [`State::snapshot`] clones pointers only. The clone is encoded off the loop, in pieces of
//! bounded size. Format, version 6: the first piece is `HOLDFAST`, the version (u16, little endian)
//! and a postcard [`Head`]; each further piece is a postcard [`Piece`]. Indexes are not written,
//! because they can be rebuilt. Version 5 had no users; version 4 had no znodes; version 3 had no node sessions with the
//! node's id, and no leases that wait for a confirmation; version 2 had no fingerprints of
//! requests. These four are still written below the level that introduced each of these, for
//! members that can't read a newer one. Version 1 had a shorter head, and no objects.

use super::State;
use crate::access::{AuditRecord, RoleName, Rule, User, UserName};
use crate::command::{Door, Lease, Mode};
use crate::effect::PriorEndings;
use crate::ids::{RequestId, Secret, SessionId, Token};
use crate::level::{ACCESS_LEVEL, CONFIRMED_LEVEL, REQUESTS_LEVEL, TREE_LEVEL};
use crate::lines;
use crate::lines::fingerprint::Fingerprint;
use crate::lines::history::Event;
use crate::lines::records::{Alone, Clock, Past, Register, Revocation, Session, Ticket};
use crate::stores::access::Access;
use crate::stores::keys::{self, StoredObject};
use crate::stores::tree::{self, Node};
use crate::text::{Label, LockName, Note, RequestKey};
use postcard::experimental::serialized_size;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

pub(super) const MAGIC: &[u8; 8] = b"HOLDFAST";

/// The newest version. Every older one is still read.
pub(super) const VERSION: u16 = 6;

/// The versions that are written.
const VERSION_2: u16 = 2;
const FINGERPRINTS_VERSION: u16 = 3;
const CONFIRMED_VERSION: u16 = 4;
pub(super) const TREE_VERSION: u16 = 5;
pub(super) const ACCESS_VERSION: u16 = 6;

/// Records per piece, which is then usually some 20 KB.
const PIECE_LEN: usize = 256;

/// Bytes of records per piece. A longer record has a piece of its own: the longest is a session
/// whose memory of requests is full, see
/// [`Limits::session_memory_bytes_max`](crate::Limits::session_memory_bytes_max).
const PIECE_BYTES: usize = 1 << 20;

/// Why bytes are not a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadSnapshot {
    /// It does not start like a snapshot.
    NotASnapshot,
    /// It was written by a newer version of the program.
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

/// A record could not be encoded, so there is no snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotEncoded {
    /// The piece it would have been in, from 0.
    piece: usize,
    why: String,
}

impl fmt::Display for NotEncoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "piece {} of the snapshot can't be encoded: {}", self.piece, self.why)
    }
}

impl std::error::Error for NotEncoded {}

/// The state at one log position.
#[derive(Debug, Clone)]
pub struct Snapshot {
    lines: lines::Data,
    keys: keys::Data,
    tree: tree::Data,
    access: Access,
    /// The behaviour level in force at that position.
    level: u16,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) before: HeadV5,
    /// The following fields exist since version 6.
    pub(super) access: AccessHead,
}

/// What the head says about users, roles and the audit.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct AccessHead {
    pub(super) users: u64,
    pub(super) roles: u64,
    pub(super) audit: u64,
    pub(super) tokens_drawn: u64,
    /// The number of the next record of the audit.
    pub(super) next_record: u64,
}

/// The head of version 5.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct HeadV5 {
    pub(super) before: HeadV4,
    /// The following fields exist since version 5.
    pub(super) nodes: u64,
    pub(super) attachments: u64,
}

/// The head of versions 3 and 4.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct HeadV4 {
    pub(super) before: HeadV2,
    /// The following fields exist since version 3.
    pub(super) fingerprints: u64,
}

/// The head of version 2.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct HeadV2 {
    pub(super) clock: Clock,
    pub(super) counter: u64,
    pub(super) sessions_drawn: u64,
    pub(super) sequence: u64,
    pub(super) events_numbered: u64,
    /// The number of records of each kind, so that a missing piece is detected.
    pub(super) records: Records,
    /// The following fields exist since version 2.
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
    Objects(Vec<StoredObject>),
    /// Relabelled tickets, and the change at which each was. They may come before their tickets.
    Relabelled(Vec<(Token, u64)>),
    /// The fingerprints of remembered requests. They may come before their requests.
    Fingerprints(Vec<(RequestName, Fingerprint)>),
    Nodes(Vec<Node>),
    /// Which attachment of a session may change znodes, where it is not the first.
    Attachments(Vec<(SessionId, u64)>),
    Users(Vec<(UserName, User)>),
    Roles(Vec<(RoleName, Vec<Rule>)>),
    Audit(Vec<Arc<AuditRecord>>),
}

/// A remembered request.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum RequestName {
    InSession(SessionId, RequestId),
    Alone(RequestKey),
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
    pub(super) after: Option<Arc<[PriorEndings]>>,
    pub(super) request_key: Option<RequestKey>,
}

impl State {
    /// A snapshot of the current state, to be written elsewhere.
    pub fn snapshot(&self) -> Snapshot {
        let (lines, keys) = (self.lines.data().clone(), self.keys.data().clone());
        let (tree, access) = (self.tree.data().clone(), self.access.clone());
        Snapshot { lines, keys, tree, access, level: self.lines.level() }
    }
}

impl Snapshot {
    /// The pieces in order. Each is encoded when it is requested, so that the whole is never in
    /// memory. An error ends the iteration, and there is no snapshot.
    pub fn pieces(&self) -> impl Iterator<Item = Result<Vec<u8>, NotEncoded>> + '_ {
        let Self { lines, keys, .. } = self;
        let pasts = lines
            .locks
            .iter()
            .filter_map(|(_, lock)| Some((lock.name.clone(), (**lock.past.as_ref()?).clone())));
        let tickets = lines.tickets.iter().map(|(_, ticket)| self.ticket_record(ticket));
        let sessions = lines.sessions.iter().map(|(_, session)| session.clone());
        let alone = lines.alone.iter().map(|(_, alone)| alone.clone());
        let register = lines.register.iter().map(|(_, register)| register.clone());
        let events = lines.history.iter().cloned();
        let objects = keys.objects.iter().map(|(_, stored)| stored.clone());
        let mut failed = false;
        std::iter::once_with(|| self.head())
            .chain(in_pieces(pasts, Piece::Pasts))
            .chain(in_pieces(tickets, Piece::Tickets))
            .chain(in_pieces(sessions, Piece::Sessions))
            .chain(in_pieces(alone, Piece::Alone))
            .chain(in_pieces(register, Piece::Register))
            .chain(in_pieces(events, Piece::Events))
            .chain(in_pieces(objects, Piece::Objects))
            .chain(in_pieces(self.relabelled(), Piece::Relabelled))
            .chain(in_pieces(self.fingerprints(), Piece::Fingerprints))
            .chain(in_pieces(self.nodes(), Piece::Nodes))
            .chain(in_pieces(self.attachments(), Piece::Attachments))
            .chain(in_pieces(self.users(), Piece::Users))
            .chain(in_pieces(self.roles(), Piece::Roles))
            .chain(in_pieces(self.audit(), Piece::Audit))
            .enumerate()
            .map(|(piece, encoded)| {
                encoded.map_err(|error| NotEncoded { piece, why: error.to_string() })
            })
            .take_while(move |piece| !std::mem::replace(&mut failed, piece.is_err()))
    }

    /// The fingerprints of remembered requests; empty below the level that introduced them.
    fn fingerprints(&self) -> impl Iterator<Item = (RequestName, Fingerprint)> + '_ {
        let sessions = self.lines.sessions.iter().flat_map(|(_, session)| {
            session.requests.iter().filter_map(|request| {
                Some((RequestName::InSession(session.id, request.id), request.fingerprint?))
            })
        });
        let alone = self.lines.alone.iter().filter_map(|(_, alone)| {
            Some((RequestName::Alone(alone.key.clone()), alone.fingerprint?))
        });
        sessions.chain(alone).filter(|_| self.version() >= FINGERPRINTS_VERSION)
    }

    /// All znodes; empty below the level that introduced them, where there are only built-in ones.
    fn nodes(&self) -> impl Iterator<Item = Node> + '_ {
        let nodes = self.tree.nodes.iter().map(|(_, node)| node.clone());
        nodes.filter(|_| self.version() >= TREE_VERSION)
    }

    fn attachments(&self) -> impl Iterator<Item = (SessionId, u64)> + '_ {
        let attachments = self.tree.attachments.iter().map(|(session, at)| (*session, *at));
        attachments.filter(|_| self.version() >= TREE_VERSION)
    }

    /// All users; none below the level that introduced them.
    fn users(&self) -> impl Iterator<Item = (UserName, User)> + '_ {
        let users = self.access.accounts().users();
        users.map(|(name, user)| (name.clone(), user.clone())).filter(|_| self.has_access())
    }

    fn roles(&self) -> impl Iterator<Item = (RoleName, Vec<Rule>)> + '_ {
        let roles = self.access.accounts().roles();
        roles.map(|(name, rules)| (name.clone(), rules.to_vec())).filter(|_| self.has_access())
    }

    fn audit(&self) -> impl Iterator<Item = Arc<AuditRecord>> + '_ {
        self.access.audit().shared().filter(|_| self.has_access()).cloned()
    }

    fn has_access(&self) -> bool {
        self.version() >= ACCESS_VERSION
    }

    /// The newest version that every member at this level can read.
    fn version(&self) -> u16 {
        match self.level {
            ACCESS_LEVEL.. => ACCESS_VERSION,
            TREE_LEVEL.. => TREE_VERSION,
            CONFIRMED_LEVEL.. => CONFIRMED_VERSION,
            REQUESTS_LEVEL.. => FINGERPRINTS_VERSION,
            _ => VERSION_2,
        }
    }

    fn relabelled(&self) -> impl Iterator<Item = (Token, u64)> + '_ {
        let tickets = self.lines.tickets.iter().map(|(_, ticket)| ticket);
        tickets.map(|ticket| (ticket.number, ticket.relabelled())).filter(|(_, change)| *change > 0)
    }

    fn head(&self) -> Result<Vec<u8>, postcard::Error> {
        let Self { lines, keys, .. } = self;
        let head = HeadV2 {
            clock: lines.clock,
            counter: lines.counter,
            sessions_drawn: lines.sessions_drawn,
            sequence: lines.sequence,
            events_numbered: lines.history.next_number,
            records: Records {
                pasts: lines.locks.iter().filter(|(_, lock)| lock.past.is_some()).count() as u64,
                tickets: lines.tickets.len() as u64,
                sessions: lines.sessions.len() as u64,
                alone: lines.alone.len() as u64,
                register: lines.register.len() as u64,
                events: lines.history.iter().count() as u64,
            },
            changes: keys.changes,
            objects: keys.objects.len() as u64,
            relabelled: self.relabelled().count() as u64,
        };
        let version = self.version();
        let bytes = [&MAGIC[..], &version.to_le_bytes()].concat();
        if version < FINGERPRINTS_VERSION {
            return postcard::to_extend(&head, bytes);
        }
        let fingerprints = self.fingerprints().count() as u64;
        let head = HeadV4 { before: head, fingerprints };
        if version < TREE_VERSION {
            return postcard::to_extend(&head, bytes);
        }
        let (nodes, attachments) = (self.nodes().count() as u64, self.attachments().count() as u64);
        let head = HeadV5 { before: head, nodes, attachments };
        if version < ACCESS_VERSION {
            return postcard::to_extend(&head, bytes);
        }
        let access = AccessHead {
            users: self.access.accounts().users().len() as u64,
            roles: self.access.accounts().roles().len() as u64,
            audit: self.access.audit().shared().count() as u64,
            tokens_drawn: self.access.accounts().tokens_drawn(),
            next_record: self.access.audit().next_number(),
        };
        postcard::to_extend(&Head { before: head, access }, bytes)
    }

    fn ticket_record(&self, ticket: &Ticket) -> TicketRecord {
        let name = |slot| self.lines.locks.get(slot).map(|lock| lock.name.clone());
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

/// Puts as many records into a piece as its limits allow, and at least one.
fn in_pieces<T: Serialize>(
    records: impl Iterator<Item = T>,
    piece: impl Fn(Vec<T>) -> Piece,
) -> impl Iterator<Item = Result<Vec<u8>, postcard::Error>> {
    let sized = |record: T| serialized_size(&record).map(|bytes| (record, bytes));
    let mut records = records.map(sized).peekable();
    std::iter::from_fn(move || {
        let mut some = Vec::new();
        let mut left = PIECE_BYTES;
        let fits = |next: &Result<(T, usize), _>, some: &[T], left: usize| {
            let within = |(_, bytes): &(T, usize)| some.is_empty() || *bytes <= left;
            some.len() < PIECE_LEN && next.as_ref().is_ok_and(within)
        };
        while let Some(Ok((record, bytes))) = records.next_if(|next| fits(next, &some, left)) {
            left = left.saturating_sub(bytes);
            some.push(record);
        }
        if !some.is_empty() {
            return Some(postcard::to_allocvec(&piece(some)));
        }
        records.next().map(|failed| failed.map(|_| Vec::new()))
    })
}
