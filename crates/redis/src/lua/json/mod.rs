//! `cjson.encode` and `cjson.decode`, compatible with the library of that name.

mod read;

use super::errors::{Raised, located, raise};
use crate::number::general;
use mlua::{Lua, MultiValue, Result, Table, Value};
use read::Reader;

/// How deep tables may be nested, in both directions.
const DEPTH_MAX: usize = 1_000;
/// Up to this length, an array may have any number of holes.
const SPARSE_SAFE: usize = 10;
/// Beyond it, at least every second element must be present.
const SPARSE_RATIO: usize = 2;

/// The longest encoded text, in bytes. The same table may occur many times, and is written each
/// time; no key has room for this much.
const TEXT_BYTES_MAX: usize = 4 << 20;

/// Creates the library's table.
pub(super) fn install(lua: &Lua) -> Result<()> {
    let table = lua.create_table()?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    table.raw_set(
        "encode",
        lua.create_function(|lua, values: MultiValue| {
            let value = only(lua, &values, "encode")?;
            let mut out = Vec::new();
            match encode(value, 0, &mut out) {
                Ok(()) => lua.create_string(&out),
                Err(text) => raise(located(lua, &text)),
            }
        })?,
    )?;
    table.raw_set(
        "decode",
        lua.create_function(|lua, values: MultiValue| {
            let text = match only(lua, &values, "decode")? {
                Value::String(text) => text.as_bytes().to_vec(),
                Value::Integer(number) => number.to_string().into_bytes(),
                Value::Number(number) => general(*number, 14).into_bytes(),
                other => {
                    let got = other.type_name();
                    let text = format!("bad argument #1 to 'decode' (string expected, got {got})");
                    return raise(located(lua, &text));
                }
            };
            Reader::new(lua, &text).whole()
        })?,
    )?;
    lua.globals().raw_set("cjson", table)
}

fn only<'a>(lua: &Lua, values: &'a MultiValue, function: &str) -> Result<&'a Value> {
    match (values.len(), values.front()) {
        (1, Some(value)) => Ok(value),
        _ => {
            let text = format!("bad argument #1 to '{function}' (expected 1 argument)");
            raise(located(lua, &text))
        }
    }
}

fn encode(value: &Value, depth: usize, out: &mut Vec<u8>) -> std::result::Result<(), String> {
    let more = match value {
        Value::String(text) => text.as_bytes().len(),
        _ => 0,
    };
    if out.len().saturating_add(more) > TEXT_BYTES_MAX {
        return Err(format!("Cannot serialise, more than {TEXT_BYTES_MAX} bytes"));
    }
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        Value::LightUserData(pointer) if pointer.0.is_null() => out.extend_from_slice(b"null"),
        Value::Boolean(yes) => out.extend_from_slice(if *yes { b"true" } else { b"false" }),
        Value::Integer(number) => number_text(*number as f64, out)?,
        Value::Number(number) => number_text(*number, out)?,
        Value::String(text) => string(&text.as_bytes(), out),
        Value::Table(table) => {
            let depth = depth + 1;
            if depth > DEPTH_MAX {
                return Err(format!("Cannot serialise, excessive nesting ({depth})"));
            }
            match array_len(table)? {
                Some(len) => array(table, len, depth, out)?,
                None => object(table, depth, out)?,
            }
        }
        other => return Err(format!("Cannot serialise {}: type not supported", other.type_name())),
    }
    Ok(())
}

fn number_text(number: f64, out: &mut Vec<u8>) -> std::result::Result<(), String> {
    if !number.is_finite() {
        return Err("Cannot serialise number: must not be NaN or Inf".to_owned());
    }
    out.extend_from_slice(general(number, 14).as_bytes());
    Ok(())
}

/// The length of an array, holes included; `None` if the table is an object, or empty.
fn array_len(table: &Table) -> std::result::Result<Option<usize>, String> {
    let (mut highest, mut count) = (0_usize, 0_usize);
    for pair in table.pairs::<Value, Value>() {
        let (key, _) = pair.map_err(|error| error.to_string())?;
        let place = match key {
            Value::Integer(place) => usize::try_from(place).ok().filter(|place| *place > 0),
            _ => None,
        };
        let Some(place) = place else { return Ok(None) };
        highest = highest.max(place);
        count += 1;
    }
    if highest > SPARSE_SAFE && highest > count.saturating_mul(SPARSE_RATIO) {
        return Err("Cannot serialise table: excessively sparse array".to_owned());
    }
    Ok(Some(highest).filter(|highest| *highest > 0))
}

fn array(
    table: &Table,
    len: usize,
    depth: usize,
    out: &mut Vec<u8>,
) -> std::result::Result<(), String> {
    out.push(b'[');
    for place in 1..=len {
        if place > 1 {
            out.push(b',');
        }
        let item: Value = table.raw_get(place).map_err(|error| error.to_string())?;
        encode(&item, depth, out)?;
    }
    out.push(b']');
    Ok(())
}

fn object(table: &Table, depth: usize, out: &mut Vec<u8>) -> std::result::Result<(), String> {
    out.push(b'{');
    let mut first = true;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair.map_err(|error| error.to_string())?;
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        match key {
            Value::String(text) => string(&text.as_bytes(), out),
            Value::Integer(number) => {
                out.extend_from_slice(format!("\"{}\"", general(number as f64, 14)).as_bytes());
            }
            Value::Number(number) => {
                out.extend_from_slice(format!("\"{}\"", general(number, 14)).as_bytes());
            }
            other => {
                return Err(format!(
                    "Cannot serialise {}: table key must be a number or string",
                    other.type_name()
                ));
            }
        }
        out.push(b':');
        encode(&value, depth, out)?;
    }
    out.push(b'}');
    Ok(())
}

fn string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'/' => out.extend_from_slice(b"\\/"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            0..32 | 127 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            plain => out.push(*plain),
        }
    }
    out.push(b'"');
}

/// Installs a stub for a library that is not available: any use of it raises an error.
pub(super) fn missing(lua: &Lua, name: &'static str) -> Result<()> {
    let text = move |_: &Lua, _: MultiValue| -> Result<Value> {
        raise(Raised {
            text: format!("ERR {name} is not available here: use cjson").into_bytes(),
            coded: true,
        })
    };
    let meta = lua.create_table()?;
    meta.raw_set("__index", lua.create_function(text)?)?;
    let table = lua.create_table()?;
    table.set_metatable(Some(meta))?;
    lua.globals().raw_set(name, table)
}
