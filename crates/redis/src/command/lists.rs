//! Lists: not locks, but some lock clients wake each other with them.

use super::Command;
use super::args::{exactly, first, integer};
use super::table::{BUT_LAST, FIRST, Spec, spec};
use crate::error::Error;
use crate::number;
use bytes::Bytes;

/// Commands on lists. The first argument is the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lists {
    /// `LPUSH`, `RPUSH`, `LPUSHX`, `RPUSHX`.
    Push {
        /// The key.
        key: Bytes,
        /// The end to push to.
        end: End,
        /// The items.
        items: Vec<Bytes>,
        /// Only if the list exists.
        only_present: bool,
    },
    /// `LPOP`, `RPOP`.
    Pop(Bytes, End, Option<usize>),
    /// `BLPOP`, `BRPOP`: the last is the timeout in milliseconds; `None` means forever.
    BlockingPop(Vec<Bytes>, End, Option<u64>),
    /// `LLEN`.
    Len(Bytes),
    /// `LRANGE`.
    Range(Bytes, i64, i64),
    /// `LINDEX`. A wrong index is reported only if the list exists.
    Index(Bytes, Result<i64, Error>),
    /// `LSET`. A wrong index is reported only if the list exists.
    Set(Bytes, Result<i64, Error>, Bytes),
    /// `LREM`.
    Rem(Bytes, i64, Bytes),
    /// `LTRIM`.
    Trim(Bytes, i64, i64),
}

/// An end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The front.
    Left,
    /// The back.
    Right,
}

pub(super) const TABLE: &[Spec] = &[
    spec("lpush", -3, "write denyoom fast", FIRST, "list", "Put items in front", |a| {
        push(a, "lpush", End::Left, false)
    }),
    spec("rpush", -3, "write denyoom fast", FIRST, "list", "Put items at the end", |a| {
        push(a, "rpush", End::Right, false)
    }),
    spec(
        "lpushx",
        -3,
        "write denyoom fast",
        FIRST,
        "list",
        "Put items in front of a list that exists",
        |a| push(a, "lpushx", End::Left, true),
    ),
    spec(
        "rpushx",
        -3,
        "write denyoom fast",
        FIRST,
        "list",
        "Put items at the end of a list that exists",
        |a| push(a, "rpushx", End::Right, true),
    ),
    spec("lpop", -2, "write fast", FIRST, "list", "Take items from the front", |a| {
        pop(a, "lpop", End::Left)
    }),
    spec("rpop", -2, "write fast", FIRST, "list", "Take items from the end", |a| {
        pop(a, "rpop", End::Right)
    }),
    spec(
        "blpop",
        -3,
        "write noscript blocking",
        BUT_LAST,
        "list",
        "Take an item from the front, or wait for one",
        |a| blocking(a, "blpop", End::Left),
    ),
    spec(
        "brpop",
        -3,
        "write noscript blocking",
        BUT_LAST,
        "list",
        "Take an item from the end, or wait for one",
        |a| blocking(a, "brpop", End::Right),
    ),
    spec("llen", 2, "readonly fast", FIRST, "list", "Count the items", |a| {
        let [key] = exactly(a, "llen")?;
        list(Lists::Len(key.clone()))
    }),
    spec("lrange", 4, "readonly", FIRST, "list", "Get some items", |a| {
        let [key, from, until] = exactly(a, "lrange")?;
        list(Lists::Range(key.clone(), integer(from)?, integer(until)?))
    }),
    spec("lindex", 3, "readonly", FIRST, "list", "Get an item", |a| {
        let [key, index] = exactly(a, "lindex")?;
        list(Lists::Index(key.clone(), integer(index)))
    }),
    spec("lset", 4, "write denyoom", FIRST, "list", "Set an item", |a| {
        let [key, index, item] = exactly(a, "lset")?;
        list(Lists::Set(key.clone(), integer(index), item.clone()))
    }),
    spec("lrem", 4, "write", FIRST, "list", "Remove items", |a| {
        let [key, count, item] = exactly(a, "lrem")?;
        list(Lists::Rem(key.clone(), integer(count)?, item.clone()))
    }),
    spec("ltrim", 4, "write", FIRST, "list", "Keep some items", |a| {
        let [key, from, until] = exactly(a, "ltrim")?;
        list(Lists::Trim(key.clone(), integer(from)?, integer(until)?))
    }),
];

fn list(command: Lists) -> Result<Command, Error> {
    Ok(Command::Lists(command))
}

fn push(a: &[Bytes], name: &str, end: End, only_present: bool) -> Result<Command, Error> {
    let (key, items) = first(a, name)?;
    list(Lists::Push { key: key.clone(), end, items: items.to_vec(), only_present })
}

fn pop(a: &[Bytes], name: &str, end: End) -> Result<Command, Error> {
    let count = match a {
        [_] => None,
        [_, count] => {
            let count = integer(count).ok().and_then(|count| usize::try_from(count).ok());
            Some(count.ok_or(Error::fixed("ERR value is out of range, must be positive"))?)
        }
        _ => return Err(Error::arity(name)),
    };
    let (key, _) = first(a, name)?;
    list(Lists::Pop(key.clone(), end, count))
}

fn blocking(a: &[Bytes], name: &str, end: End) -> Result<Command, Error> {
    let (timeout, keys) = a.split_last().ok_or_else(|| Error::arity(name))?;
    let timeout = number::float(timeout);
    let seconds = timeout.ok_or(Error::fixed("ERR timeout is not a float or out of range"))?;
    let ms = (seconds * 1000.0).ceil();
    // 2^63: larger values wrap around in Redis, too.
    if !(0.0..9_223_372_036_854_775_808.0).contains(&ms) {
        return Err(Error::fixed("ERR timeout is negative"));
    }
    let wait_ms = if ms == 0.0 { None } else { Some(ms as u64) };
    list(Lists::BlockingPop(keys.to_vec(), end, wait_ms))
}
