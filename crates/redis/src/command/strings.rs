//! Strings: each is a lock, held by one exclusive ticket whose label is the value.

use super::Command;
use super::args::{exactly, first, integer, is, next, pairs};
use super::table::{ALL, FIRST, PAIRS, Spec, spec};
use crate::error::Error;
use bytes::Bytes;

/// Commands on strings.
#[derive(Debug, Clone, PartialEq)]
pub enum Strings {
    /// `GET`.
    Get(Bytes),
    /// `SET`, `SETEX`, `PSETEX`, `GETSET`.
    Set {
        /// The key.
        key: Bytes,
        /// Its new value.
        value: Bytes,
        /// Whether this depends on the current value.
        only: SetCondition,
        /// Whether to reply with the previous value.
        get: bool,
        /// Its new expiry.
        expire: Expire,
    },
    /// `SETNX`.
    SetNx(Bytes, Bytes),
    /// `GETDEL`.
    GetDel(Bytes),
    /// `GETEX`. An invalid time is reported only if the key exists.
    GetEx(Bytes, Result<Expire, Error>),
    /// `MGET`.
    MGet(Vec<Bytes>),
    /// `MSET`.
    MSet(Vec<(Bytes, Bytes)>),
    /// `MSETNX`.
    MSetNx(Vec<(Bytes, Bytes)>),
    /// `INCR`, `DECR`, `INCRBY`, `DECRBY`.
    IncrBy(Bytes, i64),
    /// `APPEND`.
    Append(Bytes, Bytes),
    /// `STRLEN`.
    StrLen(Bytes),
    /// `GETRANGE`, `SUBSTR`.
    GetRange(Bytes, i64, i64),
    /// `DELEX`, `DELIFEQ`.
    DelIf(Bytes, SetCondition),
}

/// The condition of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetCondition {
    /// None.
    Always,
    /// Only if the key is absent.
    IfAbsent,
    /// Only if the key exists.
    IfPresent,
    /// Only if the value equals this one.
    IfEqual(Bytes),
    /// Only if the value differs from this one.
    IfNotEqual(Bytes),
}

/// The expiry of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expire {
    /// As it is.
    Keep,
    /// None: the key stays forever.
    Never,
    /// At this time; with the command's name, for errors.
    Until(ExpireTime, &'static str),
}

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpireTime {
    /// Milliseconds from now.
    AfterMs(i64),
    /// Milliseconds since 1970, by the wall clock.
    AtMs(i64),
}

pub(super) const TABLE: &[Spec] = &[
    spec("get", 2, "readonly fast", FIRST, "string", "Get the value of a key", |a| {
        one(a, "get", Strings::Get)
    }),
    spec(
        "set",
        -3,
        "write denyoom",
        FIRST,
        "string",
        "Set the value of a key: take, renew or hand over its lock",
        set,
    ),
    spec(
        "setnx",
        3,
        "write denyoom fast",
        FIRST,
        "string",
        "Set a key if it does not exist: try to take its lock",
        |a| {
            let [key, value] = exactly(a, "setnx")?;
            Ok(Command::Strings(Strings::SetNx(key.clone(), value.clone())))
        },
    ),
    spec(
        "setex",
        4,
        "write denyoom",
        FIRST,
        "string",
        "Set a key and its time to live in seconds",
        |a| set_for(a, "setex", 1000),
    ),
    spec(
        "psetex",
        4,
        "write denyoom",
        FIRST,
        "string",
        "Set a key and its time to live in milliseconds",
        |a| set_for(a, "psetex", 1),
    ),
    spec(
        "getset",
        3,
        "write denyoom fast",
        FIRST,
        "string",
        "Set a key and get what it was",
        |a| {
            let [key, value] = exactly(a, "getset")?;
            let (key, value) = (key.clone(), value.clone());
            let set = Strings::Set {
                key,
                value,
                only: SetCondition::Always,
                get: true,
                expire: Expire::Never,
            };
            Ok(Command::Strings(set))
        },
    ),
    spec("getdel", 2, "write fast", FIRST, "string", "Get the value of a key and delete it", |a| {
        one(a, "getdel", Strings::GetDel)
    }),
    spec(
        "getex",
        -2,
        "write fast",
        FIRST,
        "string",
        "Get the value of a key and set its time to live",
        getex,
    ),
    spec("mget", -2, "readonly fast", ALL, "string", "Get the values of several keys", |a| {
        Ok(Command::Strings(Strings::MGet(a.to_vec())))
    }),
    spec("mset", -3, "write denyoom", PAIRS, "string", "Set several keys", |a| {
        Ok(Command::Strings(Strings::MSet(pairs(a, "mset")?)))
    }),
    spec(
        "msetnx",
        -3,
        "write denyoom",
        PAIRS,
        "string",
        "Set several keys if none of them exists",
        |a| Ok(Command::Strings(Strings::MSetNx(pairs(a, "msetnx")?))),
    ),
    spec("incr", 2, "write denyoom fast", FIRST, "string", "Add one to a number", |a| {
        one(a, "incr", |key| Strings::IncrBy(key, 1))
    }),
    spec("decr", 2, "write denyoom fast", FIRST, "string", "Subtract one from a number", |a| {
        one(a, "decr", |key| Strings::IncrBy(key, -1))
    }),
    spec("incrby", 3, "write denyoom fast", FIRST, "string", "Add to a number", |a| {
        let [key, by] = exactly(a, "incrby")?;
        Ok(Command::Strings(Strings::IncrBy(key.clone(), integer(by)?)))
    }),
    spec("decrby", 3, "write denyoom fast", FIRST, "string", "Subtract from a number", |a| {
        let [key, by] = exactly(a, "decrby")?;
        let by = integer(by)?.checked_neg().ok_or(Error::fixed("ERR decrement would overflow"))?;
        Ok(Command::Strings(Strings::IncrBy(key.clone(), by)))
    }),
    spec("append", 3, "write denyoom fast", FIRST, "string", "Append to the value of a key", |a| {
        let [key, value] = exactly(a, "append")?;
        Ok(Command::Strings(Strings::Append(key.clone(), value.clone())))
    }),
    spec(
        "strlen",
        2,
        "readonly fast",
        FIRST,
        "string",
        "Get the length of the value of a key",
        |a| one(a, "strlen", Strings::StrLen),
    ),
    spec("getrange", 4, "readonly", FIRST, "string", "Get a part of the value of a key", |a| {
        range(a, "getrange")
    }),
    spec("substr", 4, "readonly", FIRST, "string", "Get a part of the value of a key", |a| {
        range(a, "substr")
    }),
    spec(
        "delex",
        -2,
        "write fast",
        FIRST,
        "string",
        "Delete a key if its value is, or is not, this one",
        delex,
    ),
    spec(
        "delifeq",
        3,
        "write fast",
        FIRST,
        "string",
        "Delete a key if its value is this one",
        |a| {
            let [key, value] = exactly(a, "delifeq")?;
            Ok(Command::Strings(Strings::DelIf(key.clone(), SetCondition::IfEqual(value.clone()))))
        },
    ),
];

fn one(a: &[Bytes], name: &str, make: impl Fn(Bytes) -> Strings) -> Result<Command, Error> {
    let [key] = exactly(a, name)?;
    Ok(Command::Strings(make(key.clone())))
}

fn range(a: &[Bytes], name: &str) -> Result<Command, Error> {
    let [key, from, until] = exactly(a, name)?;
    Ok(Command::Strings(Strings::GetRange(key.clone(), integer(from)?, integer(until)?)))
}

fn set_for(a: &[Bytes], name: &'static str, unit_ms: i64) -> Result<Command, Error> {
    let [key, time, value] = exactly(a, name)?;
    let expire = Expire::Until(ExpireTime::AfterMs(positive(time, unit_ms, name)?), name);
    let (key, value) = (key.clone(), value.clone());
    Ok(Command::Strings(Strings::Set {
        key,
        value,
        only: SetCondition::Always,
        get: false,
        expire,
    }))
}

/// Parses a time above zero and converts it to milliseconds.
fn positive(argument: &[u8], unit_ms: i64, command: &str) -> Result<i64, Error> {
    let time = integer(argument)?;
    let ms = time.checked_mul(unit_ms).filter(|ms| *ms > 0);
    ms.ok_or_else(|| Error::expire_time(command))
}

/// Parses one of the expiry options: `EX 10`, `PXAT ...`. `None` if it is another option.
fn until(
    option: &[u8],
    rest: &mut std::slice::Iter<'_, Bytes>,
    command: &'static str,
) -> Option<Result<Expire, Error>> {
    let (unit_ms, absolute) = match () {
        () if is(option, "ex") => (1000, false),
        () if is(option, "px") => (1, false),
        () if is(option, "exat") => (1000, true),
        () if is(option, "pxat") => (1, true),
        () => return None,
    };
    let time = match next(rest) {
        Ok(time) => time.clone(),
        Err(error) => return Some(Err(error)),
    };
    // Redis checks the number only after all options.
    Some(positive(&time, unit_ms, command).map(|ms| {
        Expire::Until(
            if absolute { ExpireTime::AtMs(ms) } else { ExpireTime::AfterMs(ms) },
            command,
        )
    }))
}

fn set(a: &[Bytes]) -> Result<Command, Error> {
    let [key, value, options @ ..] = a else { return Err(Error::arity("set")) };
    let (mut only, mut get) = (SetCondition::Always, false);
    let mut expire: Option<Result<Expire, Error>> = None;
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        if is(option, "get") {
            get = true;
        } else if is(option, "keepttl") && expire.is_none() {
            expire = Some(Ok(Expire::Keep));
        } else if is(option, "nx") && matches!(only, SetCondition::Always | SetCondition::IfAbsent)
        {
            only = SetCondition::IfAbsent;
        } else if is(option, "xx") && matches!(only, SetCondition::Always | SetCondition::IfPresent)
        {
            only = SetCondition::IfPresent;
        } else if is(option, "ifeq") && only == SetCondition::Always {
            only = SetCondition::IfEqual(next(&mut rest)?.clone());
        } else if is(option, "ifne") && only == SetCondition::Always {
            only = SetCondition::IfNotEqual(next(&mut rest)?.clone());
        } else if expire.is_none()
            && let Some(found) = until(option, &mut rest, "set")
        {
            if found == Err(Error::SYNTAX) {
                return Err(Error::SYNTAX);
            }
            expire = Some(found);
        } else {
            return Err(Error::SYNTAX);
        }
    }
    let expire = expire.unwrap_or(Ok(Expire::Never))?;
    let (key, value) = (key.clone(), value.clone());
    Ok(Command::Strings(Strings::Set { key, value, only, get, expire }))
}

fn getex(a: &[Bytes]) -> Result<Command, Error> {
    let (key, options) = first(a, "getex")?;
    let mut expire: Option<Result<Expire, Error>> = None;
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        if expire.is_some() {
            return Err(Error::SYNTAX);
        }
        expire = if is(option, "persist") {
            Some(Ok(Expire::Never))
        } else {
            Some(until(option, &mut rest, "getex").unwrap_or(Err(Error::SYNTAX)))
        };
    }
    let expire = expire.unwrap_or(Ok(Expire::Keep));
    if expire == Err(Error::SYNTAX) {
        return Err(Error::SYNTAX);
    }
    Ok(Command::Strings(Strings::GetEx(key.clone(), expire)))
}

fn delex(a: &[Bytes]) -> Result<Command, Error> {
    let only = match a {
        [_] => SetCondition::Always,
        [_, how, value] if is(how, "ifeq") => SetCondition::IfEqual(value.clone()),
        [_, how, value] if is(how, "ifne") => SetCondition::IfNotEqual(value.clone()),
        _ => return Err(Error::SYNTAX),
    };
    let (key, _) = first(a, "delex")?;
    Ok(Command::Strings(Strings::DelIf(key.clone(), only)))
}
