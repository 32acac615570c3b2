//! The records of the replicated state. Compact, because there may be millions: what is rare is
//! boxed.

use super::fingerprint::Fingerprint;
use crate::command::{Door, Lease, Mode, SessionKind};
use crate::containers::{Keyed, Slot};
use crate::effect::{Answer, EndReason, Ending, Fence, PriorEndings};
use crate::ids::{NEVER_MS, RequestId, Secret, SessionId, Term, Token};
use crate::refusal::Refusal;
use crate::text::{Label, LockName, Note, Reason, RequestKey, Value};
use crate::weight::Weight;
use postcard::experimental::serialized_size;
use serde::{Deserialize, Serialize};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

/// What a further name of a ticket takes: the lock's record, its place in line, indexes.
const FURTHER_NAME_BYTES: usize = 256;

/// What a claim takes, in its ticket and in the index of claims.
const CLAIM_BYTES: usize = 48;

/// What a lock's past takes, besides the texts of its endings.
const PAST_BYTES: usize = 256;

/// What a ticket keeps about earlier holders of one name, besides the texts.
const AFTER_BYTES: usize = 256;

/// What a remembered request takes: its entry, and the box of an answer that is not a ticket.
const REQUEST_BYTES: usize = 32;
const ANSWER_BYTES: usize = 224;

/// Time according to the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Clock {
    /// Logical time.
    pub(crate) now_ms: u64,
    /// The leader's wall clock, for display.
    pub(crate) wall_ms: u64,
    /// The term of the entry being applied.
    pub(crate) term: Term,
}

/// A name and what is known about its line. Exists while a ticket is in the line or a death is
/// remembered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Lock {
    pub(crate) name: LockName,
    /// The first ticket in line; the others are in `LineOrder`. Tickets are numbered from 1, so
    /// `None` takes no extra space.
    head: Option<NonZeroU64>,
    /// The highest ticket served so far: the next waiter is the first one above it.
    pub(crate) last_served: Token,
    /// Tickets in the line, held and waiting.
    pub(crate) line_len: u32,
    /// Tickets that hold a lock: always the first ones of the line.
    pub(crate) holders: u32,
    /// The number of permits; `None` if the line is exclusive/shared.
    permits: Option<NonZeroU32>,
    /// Whether the holder is exclusive.
    pub(crate) exclusive: bool,
    pub(crate) past: Option<Box<Past>>,
}

/// What earlier holders left behind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Past {
    /// How the last holder ended, while anyone is in line.
    pub(crate) last: Option<Arc<Ending>>,
    /// The first death that no holder has recovered from.
    pub(crate) death: Option<Death>,
    /// Nobody is served before this time.
    pub(crate) delayed_until_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Death {
    pub(crate) ending: Arc<Ending>,
    /// Deaths are numbered as they happen; the lowest is dropped first.
    pub(crate) number: u64,
    /// When the last holder died: the mark is kept for a day from then.
    pub(crate) at_ms: u64,
}

impl Lock {
    pub(crate) fn new(name: LockName) -> Self {
        Self {
            name,
            head: None,
            last_served: Token(0),
            line_len: 0,
            holders: 0,
            permits: None,
            exclusive: false,
            past: None,
        }
    }

    pub(crate) fn head(&self) -> Option<Token> {
        self.head.map(|head| Token(head.get()))
    }

    pub(crate) fn set_head(&mut self, head: Option<Token>) {
        self.head = head.and_then(|head| NonZeroU64::new(head.0));
    }

    pub(crate) fn permits(&self) -> Option<u32> {
        self.permits.map(NonZeroU32::get)
    }

    /// Sets the kind of line, from a ticket in it.
    pub(crate) fn set_kind(&mut self, mode: Mode) {
        self.permits = match mode {
            Mode::Permit { of } => NonZeroU32::new(of),
            Mode::Exclusive | Mode::Shared => None,
        };
    }

    pub(crate) fn forget_kind(&mut self) {
        self.permits = None;
    }

    pub(crate) fn waiters(&self) -> u32 {
        self.line_len.saturating_sub(self.holders)
    }

    pub(crate) fn past_mut(&mut self) -> &mut Past {
        self.past.get_or_insert_default()
    }

    pub(crate) fn death(&self) -> Option<&Death> {
        self.past.as_ref()?.death.as_ref()
    }

    pub(crate) fn delayed_until_ms(&self) -> Option<u64> {
        self.past.as_ref()?.delayed_until_ms
    }

    /// Whether nothing is left to remember.
    pub(crate) fn is_over(&self) -> bool {
        self.line_len == 0 && self.past.is_none()
    }

    /// Whether a ticket of this mode could be served besides the current holders.
    pub(crate) fn has_room_for(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => self.holders == 0,
            Mode::Shared => self.holders == 0 || !self.exclusive,
            Mode::Permit { of } => self.holders < of,
        }
    }

    pub(crate) fn weight(&self) -> Weight {
        let Some(past) = &self.past else { return Weight::texts(self.name.as_bytes().len()) };
        let death = past.death.as_ref().map(|death| &death.ending);
        let endings = past.last.iter().chain(death);
        let endings = endings.fold(0_usize, |sum, ending| sum.saturating_add(ending.texts()));
        let texts = self.name.as_bytes().len().saturating_add(endings);
        Weight { texts, rest: PAST_BYTES }
    }
}

impl Keyed for Lock {
    type Key = LockName;
    fn key(&self) -> &LockName {
        &self.name
    }
}

impl Ending {
    fn texts(&self) -> usize {
        let label = self.label.as_ref().map_or(0, |label| label.as_bytes().len());
        let note = self.note.as_ref().map_or(0, |note| note.as_bytes().len());
        let forced = self.forced.as_ref().map_or(0, |forced| {
            forced.by.as_bytes().len().saturating_add(forced.reason.as_bytes().len())
        });
        label.saturating_add(note).saturating_add(forced)
    }
}

/// A client's place in one or several lines.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ticket {
    pub(crate) number: Token,
    /// The owner of the wait, and of the held ticket if it has a session lease.
    pub(crate) session: Option<SessionId>,
    /// The request that drew it, within that session.
    pub(crate) request: Option<RequestId>,
    pub(crate) secret: Option<Secret>,
    pub(crate) label: Option<Label>,
    /// The first of its locks in name order; further ones are in `extra`.
    pub(crate) lock: Slot,
    pub(crate) mode: Mode,
    pub(crate) door: Door,
    pub(crate) held: bool,
    pub(crate) lease: Lease,
    /// While waiting, the end of the wait; while held, the end of the lease.
    pub(crate) due_ms: u64,
    pub(crate) joined_ms: u64,
    /// When it was served.
    pub(crate) since_ms: u64,
    pub(crate) extra: Option<Box<Extra>>,
}

/// What only few tickets have.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Extra {
    pub(crate) note: Option<Note>,
    /// The locks after the first, in name order.
    pub(crate) more_locks: Vec<Slot>,
    pub(crate) claims: Vec<Token>,
    pub(crate) lock_delay_ms: u64,
    /// The shared ticket that ends when this one is served.
    pub(crate) upgrades: Option<Token>,
    pub(crate) revocation: Option<Revocation>,
    /// What the grant carried, for a retry.
    pub(crate) after: Option<Arc<[PriorEndings]>>,
    pub(crate) request_key: Option<RequestKey>,
    /// The change at which it was relabelled; 0 if it has its original label.
    pub(crate) relabelled: u64,
}

/// A request to release that the holder was sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Revocation {
    pub(crate) by: Label,
    pub(crate) reason: Reason,
    pub(crate) until_ms: u64,
    pub(crate) force: bool,
}

impl Ticket {
    /// The session whose end ends this ticket, if there is one.
    pub(crate) fn bound_session(&self) -> Option<SessionId> {
        let bound = matches!(self.lease, Lease::Session | Lease::Unconfirmed { .. });
        if self.held && !bound { None } else { self.session }
    }

    /// Whether it is served, and nobody has been notified of it yet.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.held && matches!(self.lease, Lease::Unconfirmed { .. })
    }

    pub(crate) fn locks(&self) -> impl Iterator<Item = Slot> + Clone + '_ {
        let more = self.extra.as_ref().map_or(&[][..], |extra| &extra.more_locks);
        std::iter::once(self.lock).chain(more.iter().copied())
    }

    pub(crate) fn has_several_locks(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| !extra.more_locks.is_empty())
    }

    pub(crate) fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    pub(crate) fn note(&self) -> Option<&Note> {
        self.extra.as_ref()?.note.as_ref()
    }

    pub(crate) fn claims(&self) -> &[Token] {
        self.extra.as_ref().map_or(&[], |extra| &extra.claims)
    }

    pub(crate) fn upgrades(&self) -> Option<Token> {
        self.extra.as_ref()?.upgrades
    }

    pub(crate) fn revocation(&self) -> Option<&Revocation> {
        self.extra.as_ref()?.revocation.as_ref()
    }

    pub(crate) fn after(&self) -> Option<&Arc<[PriorEndings]>> {
        self.extra.as_ref()?.after.as_ref()
    }

    pub(crate) fn request_key(&self) -> Option<&RequestKey> {
        self.extra.as_ref()?.request_key.as_ref()
    }

    pub(crate) fn relabelled(&self) -> u64 {
        self.extra.as_ref().map_or(0, |extra| extra.relabelled)
    }

    pub(crate) fn due(&self) -> Option<u64> {
        (self.due_ms != NEVER_MS).then_some(self.due_ms)
    }

    pub(crate) fn weight(&self) -> Weight {
        let label = self.label.as_ref().map_or(0, |label| label.as_bytes().len());
        let extra = self.extra.as_ref().map_or(Weight::NONE, |extra| extra.weight());
        extra.and(Weight::texts(label))
    }
}

impl Extra {
    pub(crate) fn weight(&self) -> Weight {
        let note = self.note.as_ref().map_or(0, |note| note.as_bytes().len());
        let revocation = self.revocation.as_ref().map_or(0, |revocation| {
            revocation.by.as_bytes().len().saturating_add(revocation.reason.as_bytes().len())
        });
        let after = self.after.as_deref().unwrap_or_default();
        let endings = after.iter().flat_map(|after| [&after.last, &after.recover]).flatten();
        let endings = endings.fold(0_usize, |sum, ending| sum.saturating_add(ending.texts()));
        let texts = note.saturating_add(revocation).saturating_add(endings);
        let rest = [
            ticket_rest(self.more_locks.len(), self.claims.len()),
            after.len().saturating_mul(AFTER_BYTES),
        ];
        Weight { texts, rest: rest.into_iter().fold(0, usize::saturating_add) }
    }
}

/// What names after the first, and claims, add to a ticket.
pub(super) fn ticket_rest(further_names: usize, claims: usize) -> usize {
    let names = further_names.saturating_mul(FURTHER_NAME_BYTES);
    names.saturating_add(claims.saturating_mul(CLAIM_BYTES))
}

impl Keyed for Ticket {
    type Key = Token;
    fn key(&self) -> &Token {
        &self.number
    }
}

/// A client's liveness, and the memory of its requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) secret: Secret,
    pub(crate) ttl_ms: u64,
    pub(crate) label: Option<Label>,
    pub(crate) kind: SessionKind,
    pub(crate) opened_ms: u64,
    /// The number that the node's next proposal must have.
    pub(crate) next_number: u64,
    /// Requests below this are forgotten.
    pub(crate) lowest: RequestId,
    /// By id.
    pub(crate) requests: Vec<RememberedRequest>,
    /// Roughly what the memory of requests takes. Not in a snapshot: counted again.
    #[serde(skip)]
    pub(crate) memory_bytes: usize,
    /// Set when it has ended: it accepts no requests, and its tickets are being ended.
    pub(crate) dying: Option<DyingSession>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct DyingSession {
    pub(crate) how: EndReason,
    /// Sessions are swept in the order in which they ended.
    pub(crate) number: u64,
}

impl Session {
    pub(crate) fn weight(&self) -> Weight {
        let label = self.label.as_ref().map_or(0, |label| label.as_bytes().len());
        Weight { texts: label, rest: self.memory_bytes }
    }

    /// Counts the memory of requests again.
    pub(crate) fn weigh_memory(&mut self) {
        let bytes = self.requests.iter().map(|request| request.outcome.bytes());
        self.memory_bytes = bytes.fold(0, usize::saturating_add);
    }
}

/// A request of a session. Its fingerprint is in a separate piece, so that a snapshot for members
/// that don't know fingerprints is the same without them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RememberedRequest {
    pub(crate) id: RequestId,
    pub(crate) outcome: RequestOutcome,
    /// `None` if it was not seen, or is from before there were fingerprints.
    #[serde(skip)]
    pub(crate) fingerprint: Option<Fingerprint>,
}

impl Keyed for Session {
    type Key = SessionId;
    fn key(&self) -> &SessionId {
        &self.id
    }
}

/// What is remembered about a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum RequestOutcome {
    /// It drew a ticket that still exists: the answer is that ticket's current state.
    Ticket(Token),
    /// Its ticket is over.
    Over(Token, EndReason),
    Answered(Box<Answer>),
    Refused(Box<Refusal>),
    /// Its outcome was asked for before it arrived.
    Barred,
}

impl RequestOutcome {
    /// Roughly what it takes to remember this.
    pub(crate) fn bytes(&self) -> usize {
        // What can't be encoded is in no snapshot either.
        let boxed = |bytes: Result<usize, _>| bytes.unwrap_or(0).saturating_add(ANSWER_BYTES);
        let answer = match self {
            Self::Ticket(_) | Self::Over(..) | Self::Barred => 0,
            Self::Answered(answer) => boxed(serialized_size(answer)),
            Self::Refused(refusal) => boxed(serialized_size(refusal)),
        };
        answer.saturating_add(REQUEST_BYTES)
    }
}

/// A request id without a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Alone {
    pub(crate) key: RequestKey,
    pub(crate) outcome: RequestOutcome,
    /// When and in which order it is forgotten; `None` while its ticket exists.
    pub(crate) forget: Option<(u64, u64)>,
    /// As in [`RememberedRequest`].
    #[serde(skip)]
    pub(crate) fingerprint: Option<Fingerprint>,
}

impl Alone {
    pub(crate) fn weight(&self) -> Weight {
        Weight::rest(self.key.as_bytes().len().saturating_add(self.outcome.bytes()))
    }
}

impl Keyed for Alone {
    type Key = RequestKey;
    fn key(&self) -> &RequestKey {
        &self.key
    }
}

/// One key of the fenced register.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Register {
    pub(crate) key: LockName,
    pub(crate) fence: Fence,
}

impl Register {
    pub(crate) fn weight(&self) -> Weight {
        let value = weight_of(self.fence.value.as_ref());
        Weight::texts(self.key.as_bytes().len().saturating_add(value))
    }
}

pub(crate) fn weight_of(value: Option<&Value>) -> usize {
    value.map_or(0, |value| value.as_bytes().len())
}

impl Keyed for Register {
    type Key = LockName;
    fn key(&self) -> &LockName {
        &self.key
    }
}
