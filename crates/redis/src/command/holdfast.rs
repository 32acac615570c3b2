//! Commands that Redis does not have: waiting in line, tokens, and how the last holder ended.

use super::Command;
use super::args::{exactly, integer, is};
use super::table::{FIRST, NOWHERE, Spec, spec};
use crate::error::Error;
use bytes::Bytes;
use holdfast_gateway::request::TTL_MS_MAX;

/// Holdfast's own commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holdfast {
    /// `HOLDFAST.OWNERID`.
    OwnerId,
    /// `HOLDFAST.ACQUIRE name owner-id TTL ms [WAIT ms] [RETRY]`.
    Acquire {
        /// The lock.
        name: Bytes,
        /// The owner of the ticket.
        owner: Bytes,
        /// How long the lock is held, from the grant.
        ttl_ms: u64,
        /// How long to wait; 0 means try.
        wait_ms: u64,
        /// Whether to end an earlier ticket of the same owner, even if it is held.
        retry: bool,
    },
    /// `HOLDFAST.RELEASE name owner-id token`.
    Release {
        /// The lock.
        name: Bytes,
        /// The ticket's owner: the value of the key.
        owner: Bytes,
        /// Its token.
        token: u64,
    },
    /// `HOLDFAST.RENEW name owner-id token TTL ms`.
    Renew {
        /// The lock.
        name: Bytes,
        /// The ticket's owner: the value of the key.
        owner: Bytes,
        /// Its token.
        token: u64,
        /// How long the lock is held, from now.
        ttl_ms: u64,
    },
    /// `HOLDFAST.TOKEN name`.
    Token(Bytes),
}

pub(super) const TABLE: &[Spec] = &[
    spec(
        "holdfast.ownerid",
        1,
        "fast",
        NOWHERE,
        "holdfast",
        "Draw an owner id for a lock to acquire",
        |a| {
            let [] = exactly(a, "holdfast.ownerid")?;
            Ok(Command::Holdfast(Holdfast::OwnerId))
        },
    ),
    spec(
        "holdfast.acquire",
        -5,
        "write denyoom noscript blocking",
        FIRST,
        "holdfast",
        "Acquire a lock, or wait in line for it",
        acquire,
    ),
    spec("holdfast.release", 4, "write fast", FIRST, "holdfast", "Release a lock", |a| {
        let [name, owner, token] = exactly(a, "holdfast.release")?;
        let token = number(token)?;
        let (name, owner) = (name.clone(), owner.clone());
        Ok(Command::Holdfast(Holdfast::Release { name, owner, token }))
    }),
    spec("holdfast.renew", 6, "write fast", FIRST, "holdfast", "Extend a lock", renew),
    spec(
        "holdfast.token",
        2,
        "readonly fast",
        FIRST,
        "holdfast",
        "Get the token of a lock's holder",
        |a| {
            let [name] = exactly(a, "holdfast.token")?;
            Ok(Command::Holdfast(Holdfast::Token(name.clone())))
        },
    ),
];

fn acquire(a: &[Bytes]) -> Result<Command, Error> {
    let (a, retry) = match a {
        [first @ .., last] if is(last, "retry") => (first, true),
        all => (all, false),
    };
    let (name, owner, ttl, wait) = match a {
        [name, owner, how, ttl] if is(how, "ttl") => (name, owner, ttl, None),
        [name, owner, how, ttl, then, wait] if is(how, "ttl") && is(then, "wait") => {
            (name, owner, ttl, Some(wait))
        }
        _ => {
            return Err(Error::fixed(
                "ERR syntax error: HOLDFAST.ACQUIRE name owner-id TTL ms [WAIT ms] [RETRY]",
            ));
        }
    };
    let ttl_ms = time_to_live(ttl, "holdfast.acquire")?;
    let wait = wait.map_or(Ok(0), |wait| integer(wait))?;
    let wait_ms = u64::try_from(wait).map_err(|_| Error::fixed("ERR timeout is negative"))?;
    let (name, owner) = (name.clone(), owner.clone());
    Ok(Command::Holdfast(Holdfast::Acquire { name, owner, ttl_ms, wait_ms, retry }))
}

fn renew(a: &[Bytes]) -> Result<Command, Error> {
    let [name, owner, token, how, ttl] = exactly(a, "holdfast.renew")?;
    if !is(how, "ttl") {
        return Err(Error::fixed("ERR syntax error: HOLDFAST.RENEW name owner-id token TTL ms"));
    }
    let (token, ttl_ms) = (number(token)?, time_to_live(ttl, "holdfast.renew")?);
    let (name, owner) = (name.clone(), owner.clone());
    Ok(Command::Holdfast(Holdfast::Renew { name, owner, token, ttl_ms }))
}

fn number(token: &Bytes) -> Result<u64, Error> {
    u64::try_from(integer(token)?).map_err(|_| Error::NOT_AN_INTEGER)
}

fn time_to_live(ttl: &Bytes, command: &str) -> Result<u64, Error> {
    let ttl_ms = u64::try_from(integer(ttl)?).ok().filter(|ms| (1..=TTL_MS_MAX).contains(ms));
    ttl_ms.ok_or_else(|| {
        Error::err(format_args!(
            "invalid expire time in '{command}' command: TTL is in milliseconds, from 1 to \
             {TTL_MS_MAX}, a year"
        ))
    })
}
