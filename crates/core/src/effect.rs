//! What comes out of the core: an answer to whoever asked, and effects for whoever must hear.

use crate::command::{Lease, Mode};
use crate::ids::{Secret, SessionId, Token};
use crate::refusal::Refusal;
use crate::text::{Channel, Label, LockName, Message, Note, Reason, Value};
use crate::transaction::KeyKind;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What became of a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It was applied; this goes back to whoever asked.
    Answered(Result<Answer, Refusal>),
    /// Its number was applied before: a late copy, without effect.
    Seen,
    /// A lower number of that node is still missing: ignored, to be sent again.
    TooSoon,
    /// The node session that numbered it has ended: ignored.
    NodeGone,
}

/// The answer to a command that was not refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Time moved.
    Ticked,
    /// The session that was drawn.
    SessionOpened(SessionId),
    /// The session takes no more requests.
    SessionEnded(SessionId),
    /// Where the ticket stands now.
    Standing(Standing),
    /// The held ticket is over; also the answer to a repeated release.
    Released(Token),
    /// The wait is over.
    Cancelled(Token),
    /// The lease now ends at this logical time, or never.
    Renewed {
        /// Which ticket.
        token: Token,
        /// When it ends; none for a permanent lease.
        due_ms: Option<u64>,
    },
    /// The ticket is shared now.
    Downgraded(Token),
    /// The note is kept.
    Noted(Token),
    /// The mark is gone; carries the death that it stood for, if there was one.
    Recovered(Option<Arc<Ending>>),
    /// So many holders were asked to let go.
    RevocationAsked(usize),
    /// So many tickets were ended.
    Forced(usize),
    /// The request had not been seen and never will be.
    Barred,
    /// The fence took the token.
    Passed(Fence),
    /// All was written. For each write, in their order: the ticket that holds the key now, or
    /// that held it until now; none for an object and where nothing stood.
    Transacted(Vec<Option<Token>>),
}

/// Where a ticket stands now: the answer to an acquire, its retries and its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// In line.
    Waiting {
        /// Its number, which will be its token.
        token: Token,
        /// The secret that proves requests for it.
        secret: Option<Secret>,
        /// 1 for the next to be served; none if it is too far back to be counted again.
        place: Option<usize>,
        /// A death holds up the line until then.
        delayed_until_ms: Option<u64>,
    },
    /// Being served.
    Held(Grant),
    /// Over.
    Over {
        /// Its number.
        token: Token,
        /// How it ended.
        how: How,
    },
}

impl Standing {
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
    /// Whose it is.
    pub session: Option<SessionId>,
    /// What the holder calls itself.
    pub label: Option<Label>,
    /// What it left on the lock.
    pub note: Option<Note>,
    /// The secret that proves requests for it.
    pub secret: Option<Secret>,
    /// Logical time spent in line.
    pub waited_ms: u64,
    /// Per name, how those before it ended; none if all names were fresh.
    pub after: Option<Arc<[After]>>,
}

/// What the next holder hears of those before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct After {
    /// On which name.
    pub name: LockName,
    /// How the last holder ended.
    pub last: Option<Arc<Ending>>,
    /// A death that no holder has put right yet.
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
pub enum How {
    /// The holder finished.
    Released,
    /// Its deadline passed or its session fell silent.
    Expired,
    /// Its session was closed.
    Closed,
    /// Somebody broke it.
    Forced,
    /// A waiter gave up.
    Cancelled,
    /// A waiter's time was over.
    TimedOut,
    /// The cluster was restored from a backup: nobody knows what became of it. The mark of a lock
    /// that is still held says so too, of its holder.
    Restored,
}

impl How {
    /// Whether a holder that ended so may have left work half done.
    pub fn died(self) -> bool {
        matches!(self, Self::Expired | Self::Closed | Self::Forced | Self::Restored)
    }
}

/// How the last holder of a lock ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Released, expired, closed, forced or restored.
    pub how: How,
    /// Its token.
    pub token: Token,
    /// What it called itself.
    pub label: Option<Label>,
    /// What it had left on the lock.
    pub note: Option<Note>,
    /// Logical time of the end.
    pub at_ms: u64,
    /// The leader's wall clock then, for display.
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

/// What somebody other than the asker must hear: owners of tickets, watchers, connections.
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
        /// The death that is the reason.
        after: Arc<Ending>,
    },
    /// The holder is asked to let go.
    RevocationAsked {
        /// Who must hear it.
        token: Token,
        /// The session of the holder.
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
    /// The holder left a new note.
    Noted {
        /// Which ticket.
        token: Token,
        /// On which names.
        names: Names,
        /// The note; none if it was removed.
        note: Option<Note>,
    },
    /// An exclusive holder is a shared one now, with the same token.
    Downgraded {
        /// Which ticket.
        token: Token,
        /// On which names.
        names: Names,
    },
    /// A holder has put right what a dead one left.
    Recovered {
        /// Which lock.
        name: LockName,
        /// Who did it.
        token: Token,
        /// The death that is put right.
        death: Arc<Ending>,
    },
    /// A session takes no more requests.
    SessionEnded {
        /// Which one.
        session: SessionId,
        /// Closed or expired.
        how: How,
    },
    /// A holder calls itself something else now, with the same token.
    Relabelled {
        /// Which ticket.
        token: Token,
        /// On which lock.
        name: LockName,
        /// Its label from now on.
        label: Label,
    },
    /// An object was written, or is gone.
    ObjectChanged {
        /// Under which name.
        name: LockName,
        /// What it is now; none if it is gone.
        now: Option<KeyKind>,
        /// Its version; a higher one than ever before, also if it is gone.
        version: u64,
    },
    /// Something was said to whoever listens.
    Published {
        /// Where.
        channel: Channel,
        /// What.
        message: Message,
    },
}

impl Effect {
    /// The names that this is about: what a watcher is matched with.
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
            Self::SessionEnded { .. } | Self::Published { .. } => &[],
        }
    }
}

/// A ticket that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Its number.
    pub token: Token,
    /// The names it stood for.
    pub names: Names,
    /// How it ended.
    pub how: How,
    /// Whether it had been served.
    pub held: bool,
    /// How long it was held, or waited, in logical time.
    pub for_ms: u64,
    /// Whose it was.
    pub session: Option<SessionId>,
    /// What it called itself.
    pub label: Option<Label>,
    /// What it had left on the lock.
    pub note: Option<Note>,
    /// Who broke it and why, if it was forced.
    pub forced: Option<Arc<Forced>>,
}

/// The two numbers of a fence, and what it keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// The highest exclusive token seen.
    pub highest_exclusive: Token,
    /// The highest token of any mode seen.
    pub highest: Token,
    /// What the last write left; none if the key was only raised.
    pub value: Option<Value>,
}
