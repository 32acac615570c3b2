//! What the core returns: an answer for the client that asked, and effects for everyone else
//! concerned.

use crate::access::{AccessChange, AuditRecord};
use crate::command::{Lease, Mode};
use crate::ids::{Secret, SessionId, Token};
use crate::refusal::Refusal;
use crate::text::{Channel, Label, LockName, Message, Note, Reason, Value};
use crate::transaction::KeyKind;
use crate::tree::{NodeEvent, NodeResult};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What happened to a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProposalOutcome {
    /// It was applied; this goes back to the client that asked.
    Answered(Result<Answer, Refusal>),
    /// Its number was already applied: a late copy, without effect.
    Seen,
    /// A lower number from that node is still missing: ignored, to be sent again.
    TooSoon,
    /// The node session that numbered it has ended: ignored.
    NodeGone,
}

/// The answer to a command that was not refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Time moved.
    Ticked,
    /// The id of the new session.
    SessionOpened(SessionId),
    /// The session accepts no more requests.
    SessionEnded(SessionId),
    /// The ticket's current state.
    TicketStatus(TicketStatus),
    /// The held ticket is over; also the answer to a repeated release.
    Released(Token),
    /// The wait is over.
    Cancelled(Token),
    /// The lease now ends at this logical time, or never.
    Renewed {
        /// Which ticket.
        token: Token,
        /// When it ends; `None` for a permanent lease.
        due_ms: Option<u64>,
    },
    /// The ticket is shared now.
    Downgraded(Token),
    /// The note was stored.
    Noted(Token),
    /// The mark is gone; carries the death that it was for, if there was one.
    Recovered(Option<Arc<Ending>>),
    /// This many holders were asked to release.
    RevocationAsked(usize),
    /// This many tickets were ended.
    Forced(usize),
    /// The request had not been seen, and never will take effect.
    Barred,
    /// The fence accepted the token.
    Passed(Fence),
    /// Everything was written. For each write, in order: the ticket that holds the key now, or that
    /// held it until now; `None` for an object, and where there was nothing.
    Transacted(Vec<Option<Token>>),
    /// Another connection is attached to the session.
    SessionAttached {
        /// The number that its changes to znodes must carry from now on.
        attachment: u64,
    },
    /// Znodes were changed: the result of each change.
    Written(Vec<NodeResult>),
    /// Users or roles were changed.
    AccessChanged,
    /// A bearer token was added.
    TokenAdded {
        /// Its id, unique in the cluster.
        id: u64,
    },
    /// It was recorded.
    Recorded,
}

/// A ticket's current state: the answer to an acquire, to its retries and to a query for its
/// outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TicketStatus {
    /// In line.
    Waiting {
        /// Its number, which will be its token.
        token: Token,
        /// The secret that proves requests for it.
        secret: Option<Secret>,
        /// 1 for the next to be served; `None` if it is too far back to be counted again.
        place: Option<usize>,
        /// Until when a death holds up the line.
        delayed_until_ms: Option<u64>,
    },
    /// Being served.
    Held(Grant),
    /// Over.
    Over {
        /// Its number.
        token: Token,
        /// How it ended.
        how: EndReason,
    },
}

impl TicketStatus {
    /// The ticket's number.
    pub fn token(&self) -> Token {
        match self {
            Self::Waiting { token, .. } | Self::Over { token, .. } => *token,
            Self::Held(grant) => grant.token,
        }
    }
}

/// A ticket that is being served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The fencing token.
    pub token: Token,
    /// The names it holds.
    pub names: Names,
    /// Exclusive, shared or permit.
    pub mode: Mode,
    /// What keeps it alive.
    pub lease: Lease,
    /// Its session, if it has one.
    pub session: Option<SessionId>,
    /// The holder's label.
    pub label: Option<Label>,
    /// The holder's note.
    pub note: Option<Note>,
    /// The secret that proves requests for it.
    pub secret: Option<Secret>,
    /// Logical time spent waiting.
    pub waited_ms: u64,
    /// Per name, how earlier holders ended; `None` if none of the names has a past.
    pub after: Option<Arc<[PriorEndings]>>,
}

/// What the next holder learns about earlier ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorEndings {
    /// On which name.
    pub name: LockName,
    /// How the last holder ended.
    pub last: Option<Arc<Ending>>,
    /// A death that no holder has recovered from yet.
    pub recover: Option<Arc<Ending>>,
}

/// The names of a ticket: nearly always one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Names {
    /// One name.
    One(LockName),
    /// Several, in byte order.
    Many(Arc<[LockName]>),
}

impl Names {
    /// The names as a slice.
    pub fn as_slice(&self) -> &[LockName] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Many(names) => names,
        }
    }
}

/// How a ticket ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EndReason {
    /// The holder released it.
    Released,
    /// Its deadline passed or its session fell silent.
    Expired,
    /// Its session was closed.
    Closed,
    /// Someone broke the lock.
    Forced,
    /// A waiter gave up.
    Cancelled,
    /// A waiter timed out.
    TimedOut,
    /// The cluster was restored from a backup, and nobody knows what happened to it. Also used for
    /// the mark on a lock that is still held after a restore.
    Restored,
}

impl EndReason {
    /// Whether a holder that ended this way may have left work half done.
    pub fn died(self) -> bool {
        matches!(self, Self::Expired | Self::Closed | Self::Forced | Self::Restored)
    }
}

/// How the last holder of a lock ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Released, expired, closed, forced or restored.
    pub how: EndReason,
    /// Its token.
    pub token: Token,
    /// Its label.
    pub label: Option<Label>,
    /// Its note.
    pub note: Option<Note>,
    /// The logical time at which it ended.
    pub at_ms: u64,
    /// The leader's wall clock at that time, for display.
    pub wall_ms: u64,
    /// Who broke it and why, if it was forced.
    pub forced: Option<Arc<Forced>>,
}

/// Who broke a lock, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forced {
    /// Who.
    pub by: Label,
    /// Why.
    pub reason: Reason,
}

/// What others than the requesting client must learn of: owners of tickets, watchers, connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// A ticket is being served, at once or after a wait.
    Granted(Grant),
    /// A ticket is over.
    Ended(Ended),
    /// A death holds up the line: nobody is served until then.
    Delayed {
        /// Which lock.
        name: LockName,
        /// Until when, in logical time.
        until_ms: u64,
        /// The death that caused it.
        after: Arc<Ending>,
    },
    /// The holder is asked to release.
    RevocationAsked {
        /// The holder's ticket.
        token: Token,
        /// The holder's session.
        session: Option<SessionId>,
        /// On which lock.
        name: LockName,
        /// Who asks.
        by: Label,
        /// Why.
        reason: Reason,
        /// By when, in logical time.
        until_ms: u64,
        /// Whether the ticket is ended then.
        force: bool,
    },
    /// The holder changed its note.
    Noted {
        /// Which ticket.
        token: Token,
        /// On which names.
        names: Names,
        /// The note; `None` if it was removed.
        note: Option<Note>,
    },
    /// An exclusive holder is now a shared one, with the same token.
    Downgraded {
        /// Which ticket.
        token: Token,
        /// On which names.
        names: Names,
    },
    /// A holder has recovered from what a dead one left behind.
    Recovered {
        /// Which lock.
        name: LockName,
        /// The holder.
        token: Token,
        /// The death that it recovered from.
        death: Arc<Ending>,
    },
    /// A session accepts no more requests.
    SessionEnded {
        /// Which one.
        session: SessionId,
        /// Closed or expired.
        how: EndReason,
    },
    /// A holder has a new label, with the same token.
    Relabelled {
        /// Which ticket.
        token: Token,
        /// On which lock.
        name: LockName,
        /// The new label.
        label: Label,
    },
    /// An object was written or removed.
    ObjectChanged {
        /// Under which name.
        name: LockName,
        /// What it is now; `None` if it was removed.
        now: Option<KeyKind>,
        /// Its version: higher than ever before, even if it was removed.
        version: u64,
    },
    /// A message was published.
    Published {
        /// The channel.
        channel: Channel,
        /// The message.
        message: Message,
    },
    /// A znode was created or deleted, or its data was set.
    NodeChanged {
        /// Its path.
        path: Arc<str>,
        /// What happened to it.
        what: NodeEvent,
        /// The zxid of the change.
        zxid: u64,
    },
    /// Another connection is attached to a session.
    SessionAttached {
        /// Which session.
        session: SessionId,
        /// The number that its changes to znodes must carry from now on.
        attachment: u64,
    },
    /// Users or roles were changed.
    AccessChanged(Arc<AccessChange>),
    /// Somebody did something that is recorded, or tried to.
    Audited(Arc<AuditRecord>),
}

impl Effect {
    /// The names that this concerns, which watches are matched against.
    pub fn names(&self) -> &[LockName] {
        match self {
            Self::Granted(grant) => grant.names.as_slice(),
            Self::Ended(ended) => ended.names.as_slice(),
            Self::Noted { names, .. } | Self::Downgraded { names, .. } => names.as_slice(),
            Self::Delayed { name, .. }
            | Self::RevocationAsked { name, .. }
            | Self::Recovered { name, .. }
            | Self::Relabelled { name, .. }
            | Self::ObjectChanged { name, .. } => std::slice::from_ref(name),
            Self::SessionEnded { .. }
            | Self::Published { .. }
            | Self::NodeChanged { .. }
            | Self::SessionAttached { .. }
            | Self::AccessChanged(_)
            | Self::Audited(_) => &[],
        }
    }
}

/// A ticket that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Its number.
    pub token: Token,
    /// The names it was for.
    pub names: Names,
    /// How it ended.
    pub how: EndReason,
    /// Whether it had been served.
    pub held: bool,
    /// How long it was held, or waited, in logical time.
    pub for_ms: u64,
    /// Its session, if it had one.
    pub session: Option<SessionId>,
    /// Its label.
    pub label: Option<Label>,
    /// Its note.
    pub note: Option<Note>,
    /// Who broke it and why, if it was forced.
    pub forced: Option<Arc<Forced>>,
}

/// The two numbers of a fence, and its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// The highest exclusive token seen.
    pub highest_exclusive: Token,
    /// The highest token of any mode seen.
    pub highest: Token,
    /// The value of the last write; `None` if the key was only raised.
    pub value: Option<Value>,
}
