//! `cjson.encode` and `cjson.decode`, as the library of that name does them.

use super::errors::{Raised, located, raise};
use crate::number::general;
use mlua::{Lua, MultiValue, Result, Table, Value};

/// Tables within tables, both ways.
const DEPTH_MAX: usize = 1_000;
/// An array may have holes up to here.
const SPARSE_SAFE: usize = 10;
/// Beyond it, at least every second place must be filled.
const SPARSE_RATIO: usize = 2;

/// Makes the table.
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
            let mut reader = Reader { text: &text, at: 0, lua };
            reader.whole()
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

/// The highest place of an array; none if the table is an object, or empty.
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

/// A text on its way to values.
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    lua: &'a Lua,
}

impl Reader<'_> {
    fn whole(&mut self) -> Result<Value> {
        let value = self.value(0)?;
        self.spaces();
        if self.at < self.text.len() { self.expected("the end") } else { Ok(value) }
    }

    fn spaces(&mut self) {
        while self.peek().is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn fail<T>(&self, text: &str) -> Result<T> {
        raise::<T>(located(self.lua, text))
    }

    fn expected<T>(&self, what: &str) -> Result<T> {
        let found = match self.peek() {
            None => "T_END",
            Some(b'{') => "T_OBJ_BEGIN",
            Some(b'}') => "T_OBJ_END",
            Some(b'[') => "T_ARR_BEGIN",
            Some(b']') => "T_ARR_END",
            Some(b'"') => "T_STRING",
            Some(b'-' | b'0'..=b'9') => "T_NUMBER",
            Some(b':') => "T_COLON",
            Some(b',') => "T_COMMA",
            _ => "invalid token",
        };
        let place = self.at + 1;
        self.fail(&format!("Expected {what} but found {found} at character {place}"))
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        self.spaces();
        match self.peek() {
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                let rest = self.text.get(self.at..).unwrap_or_default();
                for (word, value) in [
                    (&b"true"[..], Value::Boolean(true)),
                    (b"false", Value::Boolean(false)),
                    (b"null", Value::NULL),
                ] {
                    if rest.starts_with(word) {
                        self.at += word.len();
                        return Ok(value);
                    }
                }
                self.expected("value")
            }
        }
    }

    fn deeper(&self, depth: usize) -> Result<()> {
        if depth <= DEPTH_MAX {
            return Ok(());
        }
        let place = self.at + 1;
        self.fail(&format!("Found too many nested data structures ({depth}) at character {place}"))
    }

    fn array(&mut self, depth: usize) -> Result<Value> {
        self.deeper(depth)?;
        let table = self.lua.create_table()?;
        self.at += 1;
        self.spaces();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Table(table));
        }
        for place in 1_i64.. {
            let item = self.value(depth)?;
            table.raw_set(place, item)?;
            self.spaces();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return self.expected("comma or array end"),
            }
        }
        self.at += 1;
        Ok(Value::Table(table))
    }

    fn object(&mut self, depth: usize) -> Result<Value> {
        self.deeper(depth)?;
        let table = self.lua.create_table()?;
        self.at += 1;
        self.spaces();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Table(table));
        }
        loop {
            self.spaces();
            if self.peek() != Some(b'"') {
                return self.expected("object key string");
            }
            let key = self.string()?;
            self.spaces();
            if self.peek() != Some(b':') {
                return self.expected("colon");
            }
            self.at += 1;
            let value = self.value(depth)?;
            table.raw_set(key, value)?;
            self.spaces();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return self.expected("comma or object end"),
            }
        }
        self.at += 1;
        Ok(Value::Table(table))
    }

    fn number(&mut self) -> Result<Value> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let len = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        // As far as it is a number: what follows is the next thing.
        for len in (1..=len).rev() {
            let text = rest.get(..len).and_then(|part| std::str::from_utf8(part).ok());
            if let Some(number) = text.and_then(|text| text.parse::<f64>().ok()) {
                self.at += len;
                return Ok(Value::Number(number));
            }
        }
        let place = self.at + 1;
        self.fail(&format!("Expected value but found invalid number at character {place}"))
    }

    fn string(&mut self) -> Result<mlua::String> {
        self.at += 1;
        let mut out = Vec::new();
        loop {
            let Some(byte) = self.peek() else {
                let place = self.at + 1;
                let what = "Expected value but found unexpected end of string";
                return self.fail(&format!("{what} at character {place}"));
            };
            self.at += 1;
            match byte {
                b'"' => return self.lua.create_string(&out),
                b'\\' => match self.escape() {
                    Some(escaped) => out.extend_from_slice(escaped.as_bytes()),
                    None => {
                        let what = "Expected value but found invalid escape code";
                        return self.fail(&format!("{what} at character {}", self.at));
                    }
                },
                plain => out.push(plain),
            }
        }
    }

    fn escape(&mut self) -> Option<String> {
        let byte = self.peek()?;
        self.at += 1;
        Some(match byte {
            b'n' => "\n".to_owned(),
            b'r' => "\r".to_owned(),
            b't' => "\t".to_owned(),
            b'b' => "\u{8}".to_owned(),
            b'f' => "\u{c}".to_owned(),
            b'"' | b'\\' | b'/' => char::from(byte).to_string(),
            b'u' => {
                let high = self.four()?;
                let code = if (0xD800..0xDC00).contains(&high) {
                    let rest = self.text.get(self.at..)?;
                    if !rest.starts_with(b"\\u") {
                        return None;
                    }
                    self.at += 2;
                    let low = self.four()?;
                    let low = low.checked_sub(0xDC00).filter(|low| *low < 0x400)?;
                    0x1_0000 + ((high - 0xD800) << 10) + low
                } else {
                    high
                };
                char::from_u32(code)?.to_string()
            }
            _ => return None,
        })
    }

    fn four(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    }
}

/// What is asked of libraries that are not here.
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
