//! Converts replies to Lua values, and what a script returns to a reply.

use crate::error::Error;
use crate::number::general;
use crate::resp::{Protocol, Reply};
use bytes::Bytes;
use mlua::{Lua, Result, Table, Value};

/// How deep the tables that a script returns may be nested.
const DEPTH_MAX: usize = 128;

/// What a value costs in addition to its text.
const VALUE_BYTES: usize = 48;

/// Converts a reply to a Lua value.
pub(super) fn to_lua(lua: &Lua, reply: &Reply, protocol: Protocol) -> Result<Value> {
    let new = protocol == Protocol::Resp3;
    let field = |name: &str, value: Value| -> Result<Value> {
        let table = lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    };
    let text = |bytes: &[u8]| lua.create_string(bytes).map(Value::String);
    Ok(match reply {
        Reply::Status(status) => field("ok", text(status)?)?,
        Reply::Error(error) => field("err", text(error.as_bytes())?)?,
        Reply::Integer(number) => Value::Number(*number as f64),
        Reply::Bulk(bytes) | Reply::BigNumber(bytes) | Reply::Verbatim(_, bytes) => text(bytes)?,
        Reply::Null | Reply::NullArray if new => Value::Nil,
        Reply::Null | Reply::NullArray => Value::Boolean(false),
        Reply::Boolean(yes) if new => Value::Boolean(*yes),
        Reply::Boolean(yes) => Value::Number(f64::from(u8::from(*yes))),
        Reply::Double(number) if new => field("double", Value::Number(*number))?,
        Reply::Double(number) => text(general(*number, 17).as_bytes())?,
        Reply::Map(pairs) if new => {
            let map = lua.create_table()?;
            for (key, value) in pairs {
                map.raw_set(to_lua(lua, key, protocol)?, to_lua(lua, value, protocol)?)?;
            }
            field("map", Value::Table(map))?
        }
        Reply::Map(pairs) => {
            list(lua, pairs.iter().flat_map(|(key, value)| [key, value]), protocol)?
        }
        Reply::Set(items) if new => {
            let set = lua.create_table()?;
            for item in items {
                set.raw_set(to_lua(lua, item, protocol)?, true)?;
            }
            field("set", Value::Table(set))?
        }
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => {
            list(lua, items.iter(), protocol)?
        }
    })
}

fn list<'a>(
    lua: &Lua,
    items: impl Iterator<Item = &'a Reply>,
    protocol: Protocol,
) -> Result<Value> {
    let table = lua.create_table()?;
    for (index, item) in items.enumerate() {
        table.raw_set(index + 1, to_lua(lua, item, protocol)?)?;
    }
    Ok(Value::Table(table))
}

/// Converts what a script returned. The same table may occur many times, and is copied each time:
/// `bytes_max` bounds the total.
pub(super) fn to_reply(value: &Value, protocol: Protocol, bytes_max: usize) -> Reply {
    let mut room = Some(bytes_max);
    let reply = reply(value, protocol, DEPTH_MAX, &mut room);
    if room.is_none() {
        return Reply::Error(Error::fixed("ERR too many bytes in what the script returned"));
    }
    reply.unwrap_or(Reply::Null)
}

/// `room` is what may still be copied; it becomes `None` if that was not enough.
fn reply(
    value: &Value,
    protocol: Protocol,
    depth: usize,
    room: &mut Option<usize>,
) -> Result<Reply> {
    let bytes = match value {
        Value::String(text) => text.as_bytes().len(),
        _ => 0,
    };
    *room = room.and_then(|room| room.checked_sub(bytes.saturating_add(VALUE_BYTES)));
    if room.is_none() {
        return Ok(Reply::Null);
    }
    Ok(match value {
        Value::String(text) => Reply::bulk(text.as_bytes()),
        Value::Integer(number) => Reply::Integer(*number),
        Value::Number(number) => Reply::Integer(truncated(*number)),
        Value::Boolean(yes) if protocol == Protocol::Resp3 => Reply::Boolean(*yes),
        Value::Boolean(true) => Reply::Integer(1),
        Value::Table(_) if depth == 0 => Reply::Error(Error::fixed("ERR reached lua stack limit")),
        Value::Table(table) => from_table(table, protocol, depth - 1, room)?,
        _ => Reply::Null,
    })
}

/// Converts as C does on common machines: anything out of range becomes the lowest number.
fn truncated(number: f64) -> i64 {
    if number.is_nan() || number.abs() >= 9_223_372_036_854_775_808.0 {
        i64::MIN
    } else {
        number as i64
    }
}

fn from_table(
    table: &Table,
    protocol: Protocol,
    depth: usize,
    room: &mut Option<usize>,
) -> Result<Reply> {
    let text = |name: &str| match table.raw_get(name) {
        Ok(Value::String(text)) => Some(text.as_bytes().to_vec()),
        _ => None,
    };
    if let Some(error) = text("err") {
        return Ok(Reply::Error(Error::new(uncrossed(error))));
    }
    if let Some(status) = text("ok") {
        return Ok(Reply::Status(Bytes::from(status)));
    }
    if let Value::Number(number) = table.raw_get("double")? {
        return Ok(Reply::Double(number));
    }
    if let Value::Integer(number) = table.raw_get("double")? {
        return Ok(Reply::Double(number as f64));
    }
    if let Some(digits) = text("big_number") {
        return Ok(Reply::BigNumber(Bytes::from(digits)));
    }
    if let Value::Table(map) = table.raw_get("map")? {
        let mut pairs = Vec::new();
        for pair in map.pairs::<Value, Value>() {
            let (key, value) = pair?;
            let key = reply(&key, protocol, depth, room)?;
            pairs.push((key, reply(&value, protocol, depth, room)?));
        }
        return Ok(Reply::Map(pairs));
    }
    if let Value::Table(set) = table.raw_get("set")? {
        let mut items = Vec::new();
        for pair in set.pairs::<Value, Value>() {
            items.push(reply(&pair?.0, protocol, depth, room)?);
        }
        return Ok(Reply::Set(items));
    }
    let mut items = Vec::new();
    for index in 1.. {
        match table.raw_get(index)? {
            Value::Nil => break,
            _ if room.is_none() => break,
            value => items.push(reply(&value, protocol, depth, room)?),
        }
    }
    Ok(Reply::Array(items))
}

/// Strips a leading minus, which belongs to the protocol and not to the text.
fn uncrossed(mut error: Vec<u8>) -> Vec<u8> {
    if error.first() == Some(&b'-') {
        error.remove(0);
    }
    error
}
