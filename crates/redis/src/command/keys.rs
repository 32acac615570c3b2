//! Commands on keys of any type.

use super::Command;
use super::args::{exactly, first, integer, is, next};
use super::strings::ExpireTime;
use super::table::{ALL, FIRST, KeyPlaces, NOWHERE, Spec, spec};
use crate::error::Error;
use bytes::Bytes;

/// Commands on any key.
#[derive(Debug, Clone, PartialEq)]
pub enum Keys {
    /// `DEL`, `UNLINK`.
    Del(Vec<Bytes>),
    /// `EXISTS`, `TOUCH`: a key that is given twice counts twice.
    Exists(Vec<Bytes>),
    /// `TTL`, `PTTL`, `EXPIRETIME`, `PEXPIRETIME`.
    Ttl {
        /// The key.
        key: Bytes,
        /// 1 for milliseconds, 1000 for seconds.
        unit_ms: u64,
        /// Whether to reply with the point in time, by the wall clock, instead of the time left.
        absolute: bool,
    },
    /// `EXPIRE`, `PEXPIRE`, `EXPIREAT`, `PEXPIREAT`.
    Expire {
        /// The key.
        key: Bytes,
        /// When it expires; a time in the past deletes it immediately.
        when: ExpireTime,
        /// Whether this depends on its current expiry.
        only: Condition,
        /// The command, for its errors.
        command: &'static str,
    },
    /// `PERSIST`.
    Persist(Bytes),
    /// `TYPE`.
    Type(Bytes),
    /// `KEYS`.
    Keys(Bytes),
    /// `SCAN`.
    Scan(Scan),
    /// `DBSIZE`.
    DbSize,
    /// `RANDOMKEY`.
    RandomKey,
    /// `FLUSHDB`; `FLUSHALL` for all databases.
    Flush {
        /// Whether to flush all databases.
        all: bool,
    },
}

/// The `NX`, `XX`, `GT` and `LT` options of `EXPIRE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Condition {
    /// Only if it has no expiry.
    pub none: bool,
    /// Only if it has an expiry.
    pub some: bool,
    /// Only if the new one is later.
    pub later: bool,
    /// Only if the new one is earlier.
    pub earlier: bool,
}

/// The arguments of `SCAN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// Where the page starts; 0 at first.
    pub cursor: u64,
    /// Only keys that match this pattern.
    pub pattern: Option<Bytes>,
    /// Roughly how many keys to look at.
    pub count: usize,
    /// Only keys of this type.
    pub kind: Option<Bytes>,
}

pub(super) const TABLE: &[Spec] = &[
    spec("del", -2, "write", ALL, "generic", "Delete keys: release their locks", |a| {
        Ok(Command::Keys(Keys::Del(a.to_vec())))
    }),
    spec("unlink", -2, "write fast", ALL, "generic", "Delete keys: release their locks", |a| {
        Ok(Command::Keys(Keys::Del(a.to_vec())))
    }),
    spec("exists", -2, "readonly fast", ALL, "generic", "Count the keys that exist", |a| {
        Ok(Command::Keys(Keys::Exists(a.to_vec())))
    }),
    spec("touch", -2, "readonly fast", ALL, "generic", "Count the keys that exist", |a| {
        Ok(Command::Keys(Keys::Exists(a.to_vec())))
    }),
    spec("ttl", 2, "readonly fast", FIRST, "generic", "Get the time to live in seconds", |a| {
        ttl(a, "ttl", 1000, false)
    }),
    spec(
        "pttl",
        2,
        "readonly fast",
        FIRST,
        "generic",
        "Get the time to live in milliseconds",
        |a| ttl(a, "pttl", 1, false),
    ),
    spec("expiretime", 2, "readonly fast", FIRST, "generic", "Get the end as Unix seconds", |a| {
        ttl(a, "expiretime", 1000, true)
    }),
    spec(
        "pexpiretime",
        2,
        "readonly fast",
        FIRST,
        "generic",
        "Get the end as Unix milliseconds",
        |a| ttl(a, "pexpiretime", 1, true),
    ),
    spec("expire", -3, "write fast", FIRST, "generic", "Set the time to live in seconds", |a| {
        expire(a, "expire", 1000, false)
    }),
    spec(
        "pexpire",
        -3,
        "write fast",
        FIRST,
        "generic",
        "Set the time to live in milliseconds",
        |a| expire(a, "pexpire", 1, false),
    ),
    spec("expireat", -3, "write fast", FIRST, "generic", "Set the end as Unix seconds", |a| {
        expire(a, "expireat", 1000, true)
    }),
    spec(
        "pexpireat",
        -3,
        "write fast",
        FIRST,
        "generic",
        "Set the end as Unix milliseconds",
        |a| expire(a, "pexpireat", 1, true),
    ),
    spec("persist", 2, "write fast", FIRST, "generic", "Remove the expiry of a key", |a| {
        let [key] = exactly(a, "persist")?;
        Ok(Command::Keys(Keys::Persist(key.clone())))
    }),
    spec("type", 2, "readonly fast", FIRST, "generic", "Get what a key is", |a| {
        let [key] = exactly(a, "type")?;
        Ok(Command::Keys(Keys::Type(key.clone())))
    }),
    spec("keys", 2, "readonly", NOWHERE, "generic", "List the keys that match a pattern", |a| {
        let [pattern] = exactly(a, "keys")?;
        Ok(Command::Keys(Keys::Keys(pattern.clone())))
    }),
    spec("scan", -2, "readonly", NOWHERE, "generic", "List keys page by page", scan),
    spec("dbsize", 1, "readonly fast", NOWHERE, "server", "Count the keys of the database", |_| {
        Ok(Command::Keys(Keys::DbSize))
    }),
    spec("randomkey", 1, "readonly", NOWHERE, "generic", "Get some key", |_| {
        Ok(Command::Keys(Keys::RandomKey))
    }),
    spec(
        "flushdb",
        -1,
        "write",
        KeyPlaces::None,
        "server",
        "Delete what this door has put into the database",
        |a| flush(a, false),
    ),
    spec(
        "flushall",
        -1,
        "write",
        KeyPlaces::None,
        "server",
        "Delete what this door has put into any database",
        |a| flush(a, true),
    ),
];

fn ttl(a: &[Bytes], name: &str, unit_ms: u64, absolute: bool) -> Result<Command, Error> {
    let [key] = exactly(a, name)?;
    Ok(Command::Keys(Keys::Ttl { key: key.clone(), unit_ms, absolute }))
}

fn expire(
    a: &[Bytes],
    command: &'static str,
    unit_ms: i64,
    absolute: bool,
) -> Result<Command, Error> {
    let [key, time, options @ ..] = a else { return Err(Error::arity(command)) };
    let mut only = Condition::default();
    for option in options {
        let flag = match () {
            () if is(option, "nx") => &mut only.none,
            () if is(option, "xx") => &mut only.some,
            () if is(option, "gt") => &mut only.later,
            () if is(option, "lt") => &mut only.earlier,
            () => {
                let shown = String::from_utf8_lossy(option).into_owned();
                return Err(Error::err(format_args!("Unsupported option {shown}")));
            }
        };
        *flag = true;
    }
    if only.none && (only.some || only.later || only.earlier) {
        return Err(Error::fixed(
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    if only.later && only.earlier {
        return Err(Error::fixed("ERR GT and LT options at the same time are not compatible"));
    }
    let time = integer(time)?.checked_mul(unit_ms).ok_or_else(|| Error::expire_time(command))?;
    let when = if absolute { ExpireTime::AtMs(time) } else { ExpireTime::AfterMs(time) };
    Ok(Command::Keys(Keys::Expire { key: key.clone(), when, only, command }))
}

fn scan(a: &[Bytes]) -> Result<Command, Error> {
    let (cursor, options) = first(a, "scan")?;
    let cursor = std::str::from_utf8(cursor).ok().and_then(|cursor| cursor.parse().ok());
    let cursor = cursor.ok_or(Error::fixed("ERR invalid cursor"))?;
    let mut scan = Scan { cursor, pattern: None, count: 10, kind: None };
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        if is(option, "match") {
            scan.pattern = Some(next(&mut rest)?.clone());
        } else if is(option, "count") {
            let count = integer(next(&mut rest)?)?;
            scan.count = usize::try_from(count).ok().filter(|n| *n > 0).ok_or(Error::SYNTAX)?;
        } else if is(option, "type") {
            scan.kind = Some(next(&mut rest)?.clone());
        } else {
            return Err(Error::SYNTAX);
        }
    }
    Ok(Command::Keys(Keys::Scan(scan)))
}

fn flush(a: &[Bytes], all: bool) -> Result<Command, Error> {
    match a {
        [] => {}
        [how] if is(how, "sync") || is(how, "async") => {}
        _ => return Err(Error::SYNTAX),
    }
    Ok(Command::Keys(Keys::Flush { all }))
}
