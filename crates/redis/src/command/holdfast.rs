//! What Redis does not have: waiting in line, tokens, and how the last holder ended.

use super::Command;
use super::args::{exactly, integer, is};
use super::table::{FIRST, Spec, spec};
use crate::error::Error;
use bytes::Bytes;

/// Holdfast's own commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holdfast {
    /// `HOLDFAST.ACQUIRE name label TTL ms [WAIT ms]`.
    Acquire {
        /// Which lock.
        name: Bytes,
        /// What the holder calls itself.
        label: Bytes,
        /// How long it holds, from the grant.
        ttl_ms: u64,
        /// How long it waits; 0 is a try.
        wait_ms: u64,
    },
    /// `HOLDFAST.RELEASE name label token`.
    Release {
        /// Which lock.
        name: Bytes,
        /// What the holder calls itself.
        label: Bytes,
        /// Its token.
        token: u64,
    },
    /// `HOLDFAST.TOKEN name`.
    Token(Bytes),
}

pub(super) const TABLE: &[Spec] = &[
    spec(
        "holdfast.acquire",
        -5,
        "write denyoom noscript blocking",
        FIRST,
        "holdfast",
        "Take a lock, or stand in line for it",
        acquire,
    ),
    spec("holdfast.release", 4, "write fast", FIRST, "holdfast", "Give a lock back", |a| {
        let [name, label, token] = exactly(a, "holdfast.release")?;
        let token = u64::try_from(integer(token)?).map_err(|_| Error::NOT_AN_INTEGER)?;
        let (name, label) = (name.clone(), label.clone());
        Ok(Command::Holdfast(Holdfast::Release { name, label, token }))
    }),
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
    let (name, label, ttl, wait) = match a {
        [name, label, how, ttl] if is(how, "ttl") => (name, label, ttl, None),
        [name, label, how, ttl, then, wait] if is(how, "ttl") && is(then, "wait") => {
            (name, label, ttl, Some(wait))
        }
        _ => {
            return Err(Error::fixed(
                "ERR syntax error: HOLDFAST.ACQUIRE name label TTL ms [WAIT ms]",
            ));
        }
    };
    let ttl_ms = u64::try_from(integer(ttl)?).ok().filter(|ms| *ms > 0);
    let ttl_ms = ttl_ms.ok_or_else(|| Error::expire_time("holdfast.acquire"))?;
    let wait = wait.map_or(Ok(0), |wait| integer(wait))?;
    let wait_ms = u64::try_from(wait).map_err(|_| Error::fixed("ERR timeout is negative"))?;
    let (name, label) = (name.clone(), label.clone());
    Ok(Command::Holdfast(Holdfast::Acquire { name, label, ttl_ms, wait_ms }))
}
