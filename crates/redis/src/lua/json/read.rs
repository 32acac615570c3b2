//! Parses JSON to Lua values.

use super::DEPTH_MAX;
use crate::lua::errors::{located, raise};
use mlua::{Lua, Result, Value};

/// A JSON parser.
pub(super) struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    lua: &'a Lua,
}

impl<'a> Reader<'a> {
    pub(super) fn new(lua: &'a Lua, text: &'a [u8]) -> Self {
        Self { text, at: 0, lua }
    }

    /// Parses the whole text as one value.
    pub(super) fn whole(&mut self) -> Result<Value> {
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
        // The longest prefix that is a number: what follows is the next token.
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
