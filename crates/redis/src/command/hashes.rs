//! Hashes: not locks, but some lock clients keep their counts in them.

use super::Command;
use super::args::{exactly, first, integer, pairs};
use super::table::{FIRST, Spec, spec};
use crate::error::Error;
use bytes::Bytes;

/// Commands on hashes. The first argument is the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hashes {
    /// `HSET`: replies how many fields are new.
    Set(Bytes, Vec<(Bytes, Bytes)>),
    /// `HMSET`: like `HSET` with another reply.
    MSet(Bytes, Vec<(Bytes, Bytes)>),
    /// `HSETNX`.
    SetNx(Bytes, Bytes, Bytes),
    /// `HGET`.
    Get(Bytes, Bytes),
    /// `HMGET`.
    MGet(Bytes, Vec<Bytes>),
    /// `HGETALL`.
    GetAll(Bytes),
    /// `HDEL`.
    Del(Bytes, Vec<Bytes>),
    /// `HEXISTS`.
    Exists(Bytes, Bytes),
    /// `HLEN`.
    Len(Bytes),
    /// `HKEYS`.
    Keys(Bytes),
    /// `HVALS`.
    Vals(Bytes),
    /// `HSTRLEN`.
    StrLen(Bytes, Bytes),
    /// `HINCRBY`.
    IncrBy(Bytes, Bytes, i64),
}

pub(super) const TABLE: &[Spec] = &[
    spec("hset", -4, "write denyoom fast", FIRST, "hash", "Set fields", |a| {
        let (key, rest) = first(a, "hset")?;
        hash(Hashes::Set(key.clone(), pairs(rest, "hset")?))
    }),
    spec("hmset", -4, "write denyoom fast", FIRST, "hash", "Set fields", |a| {
        let (key, rest) = first(a, "hmset")?;
        hash(Hashes::MSet(key.clone(), pairs(rest, "hmset")?))
    }),
    spec(
        "hsetnx",
        4,
        "write denyoom fast",
        FIRST,
        "hash",
        "Set a field that does not exist",
        |a| {
            let [key, field, value] = exactly(a, "hsetnx")?;
            hash(Hashes::SetNx(key.clone(), field.clone(), value.clone()))
        },
    ),
    spec("hget", 3, "readonly fast", FIRST, "hash", "Get a field", |a| {
        let [key, field] = exactly(a, "hget")?;
        hash(Hashes::Get(key.clone(), field.clone()))
    }),
    spec("hmget", -3, "readonly fast", FIRST, "hash", "Get some fields", |a| {
        let (key, fields) = first(a, "hmget")?;
        hash(Hashes::MGet(key.clone(), fields.to_vec()))
    }),
    spec("hgetall", 2, "readonly", FIRST, "hash", "Get all fields and their values", |a| {
        let [key] = exactly(a, "hgetall")?;
        hash(Hashes::GetAll(key.clone()))
    }),
    spec("hdel", -3, "write fast", FIRST, "hash", "Delete fields", |a| {
        let (key, fields) = first(a, "hdel")?;
        hash(Hashes::Del(key.clone(), fields.to_vec()))
    }),
    spec("hexists", 3, "readonly fast", FIRST, "hash", "Check whether a field exists", |a| {
        let [key, field] = exactly(a, "hexists")?;
        hash(Hashes::Exists(key.clone(), field.clone()))
    }),
    spec("hlen", 2, "readonly fast", FIRST, "hash", "Count the fields", |a| {
        let [key] = exactly(a, "hlen")?;
        hash(Hashes::Len(key.clone()))
    }),
    spec("hkeys", 2, "readonly", FIRST, "hash", "Get all fields", |a| {
        let [key] = exactly(a, "hkeys")?;
        hash(Hashes::Keys(key.clone()))
    }),
    spec("hvals", 2, "readonly", FIRST, "hash", "Get all values", |a| {
        let [key] = exactly(a, "hvals")?;
        hash(Hashes::Vals(key.clone()))
    }),
    spec("hstrlen", 3, "readonly fast", FIRST, "hash", "Get the length of a field's value", |a| {
        let [key, field] = exactly(a, "hstrlen")?;
        hash(Hashes::StrLen(key.clone(), field.clone()))
    }),
    spec("hincrby", 4, "write denyoom fast", FIRST, "hash", "Add to a number in a field", |a| {
        let [key, field, by] = exactly(a, "hincrby")?;
        hash(Hashes::IncrBy(key.clone(), field.clone(), integer(by)?))
    }),
];

fn hash(command: Hashes) -> Result<Command, Error> {
    Ok(Command::Hashes(command))
}
