//! The texts of refusals: what can't be done, and what to do instead.

use crate::access::{AccessBound, AccessRefusal, Right, UserName};
use crate::command::Door;
use crate::effect::EndReason;
use crate::ids::Token;
use crate::refusal::{Bound, CycleStep, InvalidField, Refusal, Untouched};
use crate::text::{Label, LockName};
use crate::transaction::KeyKind;
use crate::tree::{NodeRefusal, TTL_MS_MAX};
use std::fmt;

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSession(id) => {
                write!(f, "session {id} has ended or never existed: open a new one")
            }
            Self::NotOwner => f.write_str("wrong secret or label: only the owner may do this"),
            Self::NotHeld { name, token, how } => not_held(f, name, *token, *how),
            Self::NotYetServed(token) => {
                write!(f, "ticket {token} is still waiting: wait for its grant, or cancel it")
            }
            Self::AlreadyServed(token) => {
                write!(f, "ticket {token} is held already: release it instead")
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
                "too many tickets wait for each other to rule out a deadlock: retry later, or claim less",
            ),
            Self::ClaimNotHeld(token) => {
                write!(f, "claimed token {token} is not held: it was lost or released")
            }
            Self::UpgradeBlocked(name) => {
                write!(f, "somebody waits for {name}: release the shared ticket and acquire again")
            }
            Self::WrongMode(token) => {
                write!(f, "ticket {token} has another mode: only shared is upgraded, only exclusive downgraded")
            }
            Self::SessionLease(token) => {
                write!(f, "ticket {token} is kept alive by its session's heartbeats: it has no deadline to change")
            }
            Self::BadRequest(bad) => bad.fmt(f),
            Self::Full(bound) => bound.fmt(f),
            Self::TooOldToKnow(id) => {
                write!(f, "request {id} is too old: its session has confirmed the reply already")
            }
            Self::Barred => {
                f.write_str("the outcome of this request was queried before it arrived: use a new request id")
            }
            Self::OtherTerm => f.write_str("decided by the leader of another term"),
            Self::Fenced { token, highest } => {
                write!(f, "token {token} is fenced off: the highest seen is {highest}")
            }
            Self::NeverDrawn(token) => write!(f, "token {token} was never issued here"),
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
                write!(f, "{name} is a lock that is held or waited for")
            }
            Self::InUse { name, kind } => {
                write!(f, "{name} is {kind} now")
            }
            Self::OtherRequest => f.write_str(
                "this request id was used for a different request: use a new one for each request",
            ),
            Self::SessionMoved(session) => {
                write!(f, "another connection has taken over session {session}")
            }
            Self::Node { op, why } => write!(f, "change {op} of znodes: {why}"),
            Self::Access(why) => why.fmt(f),
            Self::NoRight { user, right, name } => {
                no_right(f, user.as_ref(), *right, name.as_ref())
            }
        }
    }
}

impl std::error::Error for Refusal {}

fn not_held(
    f: &mut fmt::Formatter<'_>,
    name: &LockName,
    token: Option<Token>,
    how: Option<EndReason>,
) -> fmt::Result {
    match (token, how) {
        (Some(token), Some(how)) => {
            write!(f, "ticket {token} of {name} is over ({how}): acquire again")
        }
        (Some(token), None) => write!(
            f,
            "no ticket {token} is in the line of {name}: it never was, or its ending has been forgotten"
        ),
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
        write!(f, ", delayed after a death until {until} ms")?;
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

fn no_right(
    f: &mut fmt::Formatter<'_>,
    user: Option<&UserName>,
    right: Right,
    name: Option<&LockName>,
) -> fmt::Result {
    match user {
        Some(user) => write!(f, "user {user} does not have the right to {}", verb(right))?,
        None => return f.write_str("you are not logged in, and this cluster has users"),
    }
    match name {
        Some(name) => write!(f, " {name}"),
        None if right == Right::Admin => f.write_str(" the cluster"),
        None => f.write_str(" all names"),
    }
}

fn verb(right: Right) -> &'static str {
    match right {
        Right::Use => "use",
        Right::Read => "read",
        Right::Operate => "operate on",
        Right::Admin => "administer",
    }
}

fn deadlock(f: &mut fmt::Formatter<'_>, links: &[CycleStep]) -> fmt::Result {
    f.write_str("this wait would create a cycle: ")?;
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

impl fmt::Display for EndReason {
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

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNames => "no name given: name at least one lock",
            Self::TooManyNames => "too many names for one ticket: split the work",
            Self::SameNameTwice => "a name is listed twice: name each lock once",
            Self::NoPermits => "a permit of 0 can never be served: ask for 1 or more",
            Self::NoTtl => "a TTL of 0 ms: give at least 1, or a permanent lease",
            Self::LockDelay => "a lock-delay is at most an hour: it can't be lifted early",
            Self::SessionTtl => "a session's TTL must be from 100 ms to a day",
            Self::TooManyClaims => "too many claims for one ticket",
            Self::LeaseNeedsSession => "a session lease needs a session: open one, or give a TTL",
            Self::WaitNeedsDeadline => "only a session's ticket may wait forever: give a deadline",
            Self::WaitNeedsOwner => "a wait needs an owner: a session, or a request id",
            Self::RequestNeedsSession => {
                "only an acquire or an upgrade takes a request id without a session"
            }
            Self::RequestBelowLowest => "the request's own id is below its lowest unanswered id",
            Self::OtherSession => "the request id belongs to another session than the ticket",
            Self::PermitFenced => "permits can't be fenced: several of them are held at once",
            Self::NoRequestId => "this command takes no request id: each attempt is a new request",
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

impl fmt::Display for NodeRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNode => f.write_str("there is no such znode, or no parent for it"),
            Self::NodeExists => f.write_str("there is one already"),
            Self::BadVersion => f.write_str("it has another version"),
            Self::NotEmpty => f.write_str("it has children"),
            Self::ParentIsEphemeral => {
                f.write_str("its parent is ephemeral, or a place in the line of a lock")
            }
            Self::NoAuth => f.write_str("the access control list does not allow it"),
            Self::InvalidAcl => f.write_str("the access control list is not valid"),
            Self::BadPath(bad) => write!(f, "invalid path: {bad}"),
            Self::BadTtl => write!(f, "a time to live is 1ms to {TTL_MS_MAX}ms"),
            Self::TooManyOps => f.write_str("too many changes in one request: split them up"),
            Self::TooLarge => f.write_str("too many bytes in one request: split them up"),
            Self::OtherRecipe { recipe } => write!(
                f,
                "the directory is in use as a lock of another kind ({}): use another directory, or \
                 the same kind of lock",
                recipe.marker()
            ),
            Self::OtherDoor(token) => write!(
                f,
                "it represents ticket {token}, which was taken through another protocol: it is \
                 removed when that is released"
            ),
            Self::NumbersUsedUp => {
                f.write_str("the directory has no numbers left: use another, or create it again")
            }
            Self::Lock(refusal) => refusal.fmt(f),
            Self::LineTooLong => f.write_str(
                "too many clients of other protocols wait for this lock: try again later",
            ),
            Self::TooManyEphemerals => {
                f.write_str("the session has too many ephemeral znodes: use several sessions")
            }
            Self::Full => f.write_str("there is no room for more znodes: delete some"),
            Self::TicketWithTtl => f.write_str(
                "a place in the line of a lock can't have a TTL: make the znode ephemeral",
            ),
        }
    }
}

impl fmt::Display for AccessRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UserExists(user) => write!(f, "there is already a user {user}"),
            Self::ReservedName(user) => {
                write!(
                    f,
                    "{user} is the name of the user with the cluster's password: choose another"
                )
            }
            Self::NoUser(user) => write!(f, "there is no user {user}"),
            Self::NoRole(role) => write!(f, "there is no role {role}: create it first"),
            Self::NoToken(id) => write!(f, "the user has no token {id}"),
            Self::BuiltInRole(role) => {
                write!(f, "the role {role} is built in and can't be changed")
            }
            Self::RoleInUse { role, user } => {
                write!(f, "{user} still has the role {role}: take it away first")
            }
            Self::BadRule => f.write_str(
                "a rule needs at least one right, and `admin` can't be limited to a prefix",
            ),
            Self::NoAdmin => f.write_str(
                "no user would be left who can manage users: give one the role `admin` first",
            ),
            Self::Full { what, max } => write!(f, "there are already {max} {what}"),
        }
    }
}

impl fmt::Display for AccessBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Users => "users",
            Self::Roles => "roles",
            Self::RolesOfUser => "roles for this user",
            Self::TokensOfUser => "tokens for this user: remove one that is no longer needed",
            Self::RulesOfRole => "rules in this role",
        })
    }
}
