//! Refusals: answers that say what can't be done and what to do instead, the same on every replica.

use crate::access::{AccessRefusal, Right, UserName};
use crate::command::Door;
use crate::effect::EndReason;
use crate::ids::{RequestId, SessionId, Token};
use crate::text::{Label, LockName};
use crate::transaction::KeyKind;
use crate::tree::NodeRefusal;
use serde::{Deserialize, Serialize};

/// Why a command had no effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The session is not known: it has ended, or never existed.
    NoSession(SessionId),
    /// The secret of the session or ticket, or the label, is wrong.
    NotOwner,
    /// No such ticket is in that line now.
    NotHeld {
        /// Which lock.
        name: LockName,
        /// Which ticket, if one was named.
        token: Option<Token>,
        /// How it ended, if that is still known.
        how: Option<EndReason>,
    },
    /// The ticket is still waiting, and this needs a held one.
    NotYetServed(Token),
    /// The ticket is held: it can be released, not cancelled.
    AlreadyServed(Token),
    /// A try, and the lock is not free.
    Busy {
        /// Which of the names.
        name: LockName,
        /// Who holds it; `None` if someone only waits, or a death holds up the line.
        holder: Option<Token>,
        /// The holder's label.
        label: Option<Label>,
        /// Until when a death holds up the line.
        delayed_until_ms: Option<u64>,
    },
    /// The line is of the other kind, or has a different number of permits.
    OtherKind {
        /// Which lock.
        name: LockName,
        /// The number of permits in effect; `None` if the line is exclusive/shared.
        permits: Option<u32>,
    },
    /// The ticket's session already holds one of several names.
    AlreadyHeld {
        /// Which name.
        name: LockName,
        /// Under which token.
        token: Token,
    },
    /// The wait would close a cycle of claims: the cycle, from the requesting ticket back to it.
    WouldDeadlock(Vec<CycleStep>),
    /// The search for a cycle visited too many tickets to be sure that there is none.
    TooTangled,
    /// A claimed token is not held.
    ClaimNotHeld(Token),
    /// Someone is waiting, so a reader can't become the writer.
    UpgradeBlocked(LockName),
    /// The ticket's mode does not allow this.
    WrongMode(Token),
    /// The lease depends on the session: there is no deadline to change.
    SessionLease(Token),
    /// A field is out of range, or conflicts with another one.
    BadRequest(InvalidField),
    /// A limit is reached.
    Full(Bound),
    /// The request is below the lowest id that its session said it still needs.
    TooOldToKnow(RequestId),
    /// The outcome was asked for before the request arrived: it must not take effect any more.
    Barred,
    /// The expiry was decided by the leader of another term.
    OtherTerm,
    /// The token is older than one that the fence has seen.
    Fenced {
        /// The token that was shown.
        token: Token,
        /// The highest token that it conflicts with.
        highest: Token,
    },
    /// No ticket with this number was ever drawn.
    NeverDrawn(Token),
    /// There are more holders than a command by name alone may visit.
    NameTheToken(LockName),
    /// A key is no longer what a transaction read: nothing was written.
    Changed {
        /// Which key; `None` if it is about all keys.
        name: Option<LockName>,
    },
    /// A transaction would change a ticket that it must not change: nothing was written.
    Held {
        /// Which key.
        name: LockName,
        /// The first holder.
        token: Token,
        /// The holder's label.
        label: Option<Label>,
        /// The holder's door.
        door: Door,
        /// Why it must not be changed.
        why: Untouched,
    },
    /// The name is in use as something else.
    InUse {
        /// Which name.
        name: LockName,
        /// What it is.
        kind: KeyKind,
    },
    /// This request id was used for a different request before.
    OtherRequest,
    /// Another connection has attached to the session.
    SessionMoved(SessionId),
    /// One change to znodes is not possible, so none of the command was made.
    Node {
        /// The index of that change in the command, from 0.
        op: u32,
        /// Why it is not possible.
        why: NodeRefusal,
    },
    /// Users and roles were not changed.
    Access(AccessRefusal),
    /// The user has no right to do this. Decided before anything is proposed, never by the core.
    NoRight {
        /// Who; `None` for a client that has not been authenticated.
        user: Option<UserName>,
        /// The right that is needed.
        right: Right,
        /// To which name, or to all names that begin with it; `None` for all names.
        name: Option<LockName>,
    },
}

/// Why a transaction must not change a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Untouched {
    /// It came through another door.
    OtherDoor,
    /// Its label is not enough proof: it has a secret, depends on a session (which includes a
    /// ticket that was just served, until its holder is notified), is not exclusive, or has several
    /// names.
    NotAText,
    /// There are waiters: the next holder is the first in line.
    WaitedFor,
    /// It would be broken, and it has a lock-delay for that case.
    LockDelay,
}

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum InvalidField {
    /// No name was given.
    NoNames,
    /// More names than one ticket may take.
    TooManyNames,
    /// A name occurs twice.
    SameNameTwice,
    /// A permit of 0.
    NoPermits,
    /// A TTL of zero.
    NoTtl,
    /// A lock-delay above its limit.
    LockDelay,
    /// A session TTL out of range.
    SessionTtl,
    /// More claims than a ticket may have.
    TooManyClaims,
    /// A session lease without a session.
    LeaseNeedsSession,
    /// A wait without an end that no session's heartbeat would end.
    WaitNeedsDeadline,
    /// Neither a session nor a request id: nobody would own the wait.
    WaitNeedsOwner,
    /// A request id without a session, for a command that draws no ticket.
    RequestNeedsSession,
    /// An id below the lowest one that the same request names.
    RequestBelowLowest,
    /// The request's session is not the ticket's.
    OtherSession,
    /// A permit shown to a fence.
    PermitFenced,
    /// A request id for a command that takes none.
    NoRequestId,
    /// A transaction through the native door.
    NativeTransaction,
    /// More keys read than one transaction may.
    TooManyKeysRead,
    /// More keys written than one transaction may.
    TooManyKeysWritten,
    /// More messages than one transaction may publish.
    TooManyPublished,
    /// An object above its limits.
    ObjectTooLarge,
    /// Too many bytes for one transaction.
    TransactionTooLarge,
}

/// Which limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// Tickets in total.
    Tickets,
    /// Waiters in this line.
    Waiters,
    /// Sessions in total.
    Sessions,
    /// Requests of this session whose answers it still needs.
    Requests,
    /// Request ids without a session.
    RequestsAlone,
    /// Keys of the register.
    RegisterKeys,
    /// Bytes in total.
    Bytes,
    /// Objects in total.
    Objects,
}

/// One step of a cycle: who waits, for which lock, and who is ahead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleStep {
    /// The waiting ticket; `None` for the one that is being refused.
    pub waiter: Option<Token>,
    /// Its label.
    pub label: Option<Label>,
    /// The lock that it waits for.
    pub waits_for: LockName,
    /// The ticket in front of it.
    pub behind: Token,
    /// The label of that ticket.
    pub behind_label: Option<Label>,
}
