//! What can't be done is an answer, the same on every replica; each says what to do instead.

use crate::command::Door;
use crate::effect::How;
use crate::ids::{RequestId, SessionId, Token};
use crate::text::{Label, LockName};
use crate::transaction::KeyKind;
use serde::{Deserialize, Serialize};
use std::fmt;

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
}

/// Why a transaction does not touch a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Untouched {
    /// It came in through another door.
    OtherDoor,
    /// It is not one that knowing its label is enough for: it has a secret, lives by a session,
    /// is not exclusive, or has several names.
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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSession(id) => {
                write!(f, "session {id} has ended or never was: open a new one")
            }
            Self::NotOwner => f.write_str("wrong secret or label: only the owner may do this"),
            Self::NotHeld { name, token, how } => not_held(f, name, *token, *how),
            Self::NotYetServed(token) => {
                write!(f, "ticket {token} is still waiting: wait for its grant, or cancel it")
            }
            Self::AlreadyServed(token) => {
                write!(f, "ticket {token} is being served: release it instead")
            }
            Self::Busy { name, holder, label, delayed_until_ms } => {
                busy(f, name, *holder, label.as_ref(), *delayed_until_ms)
            }
            Self::OtherKind { name, permits: Some(of) } => {
                write!(f, "{name} has {of} permits now: ask for a permit of {of}, or wait until its line is empty")
            }
            Self::OtherKind { name, permits: None } => {
                write!(f, "{name} is an exclusive/shared line now: permits must wait until it is empty")
            }
            Self::AlreadyHeld { name, token } => {
                write!(f, "this session already holds {name} with token {token}: release it first, or leave it out")
            }
            Self::WouldDeadlock(links) => deadlock(f, links),
            Self::TooTangled => f.write_str(
                "too many tickets stand in each other's way to rule out a deadlock: retry later, or claim less",
            ),
            Self::ClaimNotHeld(token) => {
                write!(f, "claimed token {token} is not held: it was lost or released")
            }
            Self::UpgradeBlocked(name) => {
                write!(f, "somebody waits for {name}: release the shared ticket and acquire anew")
            }
            Self::WrongMode(token) => {
                write!(f, "ticket {token} has another mode: only shared is upgraded, only exclusive downgraded")
            }
            Self::SessionLease(token) => {
                write!(f, "ticket {token} lives by its session's heartbeat: there is no deadline to change")
            }
            Self::BadRequest(bad) => bad.fmt(f),
            Self::Full(bound) => bound.fmt(f),
            Self::TooOldToKnow(id) => {
                write!(f, "request {id} is too old to know: its session said that it has the answer")
            }
            Self::Barred => {
                f.write_str("an outcome was asked for before this request came: use a new request id")
            }
            Self::OtherTerm => f.write_str("decided by the leader of another term"),
            Self::Fenced { token, highest } => {
                write!(f, "token {token} is fenced off: the highest seen is {highest}")
            }
            Self::NeverDrawn(token) => write!(f, "token {token} was never drawn here"),
            Self::NameTheToken(name) => {
                write!(f, "{name} has several holders: name the token of the one you mean")
            }
            Self::Changed { name: Some(name) } => {
                write!(f, "{name} has changed since it was read: read it again")
            }
            Self::Changed { name: None } => {
                f.write_str("keys have come or gone since they were listed: list them again")
            }
            Self::Held { name, token, label, door, why } => {
                held(f, name, *token, label.as_ref(), *door, *why)
            }
            Self::InUse { name, kind: KeyKind::Text } => {
                write!(f, "{name} is a lock that is held or waited for: use another name, or delete it first")
            }
            Self::InUse { name, kind } => {
                write!(f, "{name} is {kind} now: use another name, or delete it first")
            }
        }
    }
}

impl std::error::Error for Refusal {}

fn not_held(
    f: &mut fmt::Formatter<'_>,
    name: &LockName,
    token: Option<Token>,
    how: Option<How>,
) -> fmt::Result {
    match (token, how) {
        (Some(token), Some(how)) => {
            write!(f, "ticket {token} of {name} is over ({how}): acquire anew")
        }
        (Some(token), None) => write!(f, "no ticket {token} stands in the line of {name}"),
        (None, _) => write!(f, "nobody holds {name}"),
    }
}

fn busy(
    f: &mut fmt::Formatter<'_>,
    name: &LockName,
    holder: Option<Token>,
    label: Option<&Label>,
    delayed_until_ms: Option<u64>,
) -> fmt::Result {
    write!(f, "{name} is busy")?;
    match (holder, label) {
        (Some(token), Some(label)) => write!(f, ", token {token} of {label}")?,
        (Some(token), None) => write!(f, ", token {token}")?,
        (None, _) => {}
    }
    if let Some(until) = delayed_until_ms {
        write!(f, ", held up by a death until {until} ms")?;
    }
    f.write_str(": wait for it, or try later")
}

fn held(
    f: &mut fmt::Formatter<'_>,
    name: &LockName,
    token: Token,
    label: Option<&Label>,
    door: Door,
    why: Untouched,
) -> fmt::Result {
    write!(f, "{name} is held through the {door} door, token {token}")?;
    if let Some(label) = label {
        write!(f, " of {label}")?;
    }
    f.write_str(match why {
        Untouched::OtherDoor => ": release it there, or wait until it ends",
        Untouched::NotAText => ", and its label proves nothing: its owner must release it",
        Untouched::WaitedFor => {
            ", and somebody waits for it: delete it, and the first in line is served"
        }
        Untouched::LockDelay => ", with a lock-delay: delete it instead of breaking it",
    })
}

fn deadlock(f: &mut fmt::Formatter<'_>, links: &[Link]) -> fmt::Result {
    f.write_str("this wait would close a circle: ")?;
    for (index, link) in links.iter().enumerate() {
        if index > 0 {
            f.write_str("; ")?;
        }
        match (&link.waiter, &link.label) {
            (None, _) => f.write_str("you would wait")?,
            (Some(token), None) => write!(f, "ticket {token} waits")?,
            (Some(token), Some(label)) => write!(f, "ticket {token} ({label}) waits")?,
        }
        write!(f, " for {} behind token {}", link.waits_for, link.behind)?;
        if let Some(label) = &link.behind_label {
            write!(f, " ({label})")?;
        }
    }
    f.write_str(", which you keep: release it first, or take all names in one step")
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Closed => "closed",
            Self::Forced => "forced",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed out",
            Self::Restored => "restored",
        })
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "a text",
            Self::Hash => "a hash",
            Self::List => "a list",
        })
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Redis => "Redis",
            Self::ZooKeeper => "ZooKeeper",
            Self::Cql => "CQL",
        })
    }
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNames => "no name given: name at least one lock",
            Self::TooManyNames => "too many names for one ticket: split the work",
            Self::SameNameTwice => "a name stands twice: name each lock once",
            Self::NoPermits => "a permit of 0 can never be served: ask for 1 or more",
            Self::NoTtl => "a TTL of 0 ms: give at least 1, or a permanent lease",
            Self::LockDelay => "a lock-delay is at most an hour: nothing lifts it before its time",
            Self::SessionTtl => "a session's TTL must be from 100 ms to a day",
            Self::TooManyClaims => "too many claims for one ticket",
            Self::LeaseNeedsSession => "a session lease needs a session: open one, or give a TTL",
            Self::WaitNeedsDeadline => "only a session's ticket may wait for ever: give a deadline",
            Self::WaitNeedsOwner => "a wait needs an owner: a session, or a request id",
            Self::RequestNeedsSession => {
                "only an acquire or an upgrade takes a request id without a session"
            }
            Self::RequestBelowLowest => "the request's own id is below its lowest unanswered id",
            Self::OtherSession => "the request id belongs to another session than the ticket",
            Self::PermitFenced => "permits can't be fenced: several of them are held at once",
            Self::NoRequestId => "this command takes no request id: it is made anew each time",
            Self::NativeTransaction => {
                "the native door has no transactions: acquire and release one by one"
            }
            Self::TooManyKeysRead => "too many keys read in one transaction: split the work",
            Self::TooManyKeysWritten => "too many keys written in one transaction: split the work",
            Self::TooManyPublished => "too many messages in one transaction: split the work",
            Self::ObjectTooLarge => "too much in one hash or list: split it over several names",
            Self::TransactionTooLarge => "too many bytes in one transaction: split the work",
        })
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tickets => "all lines together are full: try later, with a new request id",
            Self::Waiters => "this line is full: try later, with a new request id",
            Self::Sessions => "too many sessions are open: try later, or share one",
            Self::Requests => "too many unanswered requests: name the lowest one still needed",
            Self::RequestsAlone => {
                "too many request ids without a session: try later, or open a session"
            }
            Self::RegisterKeys => "the fenced register has no room for another key",
            Self::Objects => "there are too many hashes and lists: delete some, or try later",
            Self::Bytes => {
                "names, labels, notes and values fill the memory: try later, or use shorter ones"
            }
        })
    }
}
