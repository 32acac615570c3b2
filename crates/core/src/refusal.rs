//! What can't be done is an answer, the same on every replica; each says what to do instead.

use crate::command::Door;
use crate::effect::How;
use crate::ids::{RequestId, SessionId, Token};
use crate::text::{Label, LockName};
use crate::transaction::KeyKind;
use serde::{Deserialize, Serialize};

/// Why a command had no effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The session is not known: it ended, or never was.
    NoSession(SessionId),
    /// The session's or ticket's secret, or the label, is not the right one.
    NotOwner,
    /// No such ticket stands in that line now.
    NotHeld {
        /// Which lock.
        name: LockName,
        /// Which ticket, if one was named.
        token: Option<Token>,
        /// How it ended, if that is still known.
        how: Option<How>,
    },
    /// The ticket is still waiting, and this needs a held one.
    NotYetServed(Token),
    /// The ticket is held: it is released, not cancelled.
    AlreadyServed(Token),
    /// A try, and the lock can't be had at once.
    Busy {
        /// Which of the names.
        name: LockName,
        /// Who holds it; none if somebody only waits, or a death holds up the line.
        holder: Option<Token>,
        /// What that one calls itself.
        label: Option<Label>,
        /// A death holds up the line until then.
        delayed_until_ms: Option<u64>,
    },
    /// The line is of the other kind, or has another number of permits.
    OtherKind {
        /// Which lock.
        name: LockName,
        /// The number of permits in force; none if the line is exclusive/shared.
        permits: Option<u32>,
    },
    /// The ticket's session already holds one of several names.
    AlreadyHeld {
        /// Which name.
        name: LockName,
        /// Under which token.
        token: Token,
    },
    /// The wait would close a circle of claims; the circle, from the asker back to it.
    WouldDeadlock(Vec<Link>),
    /// The circle search looked at too many tickets to be sure that there is none.
    TooTangled,
    /// A claimed token is not held.
    ClaimNotHeld(Token),
    /// Somebody waits, so a reader can't become the writer.
    UpgradeBlocked(LockName),
    /// The ticket's mode does not allow this.
    WrongMode(Token),
    /// The lease hangs on the session: there is no deadline to change.
    SessionLease(Token),
    /// A field is outside its bounds, or does not go with another one.
    BadRequest(Bad),
    /// A bound is reached.
    Full(Bound),
    /// The request is below the lowest id that its session said it still needs.
    TooOldToKnow(RequestId),
    /// An outcome was asked for before the request came: it must not take effect any more.
    Barred,
    /// The expiry was decided by the leader of another term.
    OtherTerm,
    /// The token is older than one that the fence has seen.
    Fenced {
        /// The token that was shown.
        token: Token,
        /// The highest that it conflicts with.
        highest: Token,
    },
    /// No ticket with such a number was ever drawn.
    NeverDrawn(Token),
    /// More holders than a command by name alone walks through.
    NameTheToken(LockName),
    /// A key is not any more what a transaction saw: nothing was written.
    Changed {
        /// Which key; none if it is about all keys.
        name: Option<LockName>,
    },
    /// A transaction would touch a ticket that it may not touch: nothing was written.
    Held {
        /// Which key.
        name: LockName,
        /// The first holder.
        token: Token,
        /// What that one calls itself.
        label: Option<Label>,
        /// Where that one came in.
        door: Door,
        /// Why it is not touched.
        why: Untouched,
    },
    /// The name is in use as something else.
    InUse {
        /// Which name.
        name: LockName,
        /// What it is.
        kind: KeyKind,
    },
    /// Something else was asked for under this request id before.
    OtherRequest,
}

/// Why a transaction does not touch a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Untouched {
    /// It came in through another door.
    OtherDoor,
    /// It is not one that knowing its label is enough for: it has a secret, lives by a session (also
    /// one that was just served, until its holder is told), is not exclusive, or has several names.
    NotAText,
    /// Somebody waits: the next holder is the first in line.
    WaitedFor,
    /// It would be broken, and asked for a lock-delay then.
    LockDelay,
}

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bad {
    /// No name at all.
    NoNames,
    /// More names than one ticket may take.
    TooManyNames,
    /// A name stands twice.
    SameNameTwice,
    /// A permit of none.
    NoPermits,
    /// A TTL of zero.
    NoTtl,
    /// A lock-delay beyond its bound.
    LockDelay,
    /// A session TTL outside its bounds.
    SessionTtl,
    /// More claims than a ticket may have.
    TooManyClaims,
    /// A session lease without a session.
    LeaseNeedsSession,
    /// A wait without an end that no session's heartbeat would end.
    WaitNeedsDeadline,
    /// Neither a session nor a request id: nobody would own the wait.
    WaitNeedsOwner,
    /// A request id without a session on a command that draws no ticket.
    RequestNeedsSession,
    /// An id below the lowest one that the same request names.
    RequestBelowLowest,
    /// The request's session and the ticket's are not the same.
    OtherSession,
    /// A permit shown to a fence.
    PermitFenced,
    /// A request id on a command that is made anew each time.
    NoRequestId,
    /// A transaction through the native door.
    NativeTransaction,
    /// More keys read than one transaction may.
    TooManyKeysRead,
    /// More keys written than one transaction may.
    TooManyKeysWritten,
    /// More messages than one transaction may publish.
    TooManyPublished,
    /// An object beyond its bounds.
    ObjectTooLarge,
    /// More bytes than one transaction may have.
    TransactionTooLarge,
}

/// Which bound is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// Tickets in all.
    Tickets,
    /// Waiters in this line.
    Waiters,
    /// Sessions in all.
    Sessions,
    /// Requests of this session whose answers it still needs.
    Requests,
    /// Request ids without a session.
    RequestsAlone,
    /// Keys of the register.
    RegisterKeys,
    /// Bytes in all.
    Bytes,
    /// Objects in all.
    Objects,
}

/// One step of a circle: who waits, for which lock, which is kept by whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The waiting ticket; none for the one that is being refused.
    pub waiter: Option<Token>,
    /// What it calls itself.
    pub label: Option<Label>,
    /// The lock that it waits for.
    pub waits_for: LockName,
    /// The ticket in front of it.
    pub behind: Token,
    /// What that one calls itself.
    pub behind_label: Option<Label>,
}
