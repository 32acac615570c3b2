//! Bytes to requests: arrays of texts, or a line typed by hand.
//!
//! The decoder keeps what it has understood of a request that is not whole yet, so bytes that
//! come in small pieces are looked at once.

use crate::number::integer;
use bytes::{Buf, Bytes, BytesMut};
use std::fmt;
use std::iter::Peekable;

/// A request: the name of a command and its arguments. Never empty.
pub type Request = Vec<Bytes>;

/// How large a request may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of all arguments together. A transaction has at most half a MiB, and a script comes
    /// on top.
    pub request_bytes_max: usize,
    /// Arguments, with the name of the command.
    pub arguments_max: usize,
    /// Bytes of one argument.
    pub argument_bytes_max: usize,
    /// Bytes of a line: the longest request typed by hand, or a number's line.
    pub line_bytes_max: usize,
}

impl Bounds {
    /// For clients that may do something here.
    pub const DEFAULT: Self = Self {
        request_bytes_max: 1 << 20,
        arguments_max: 8_192,
        argument_bytes_max: 1 << 19,
        line_bytes_max: 1 << 16,
    };

    /// For clients that have not yet said the password: enough to say it. The numbers are Redis's.
    pub const BEFORE_PASSWORD: Self = Self {
        request_bytes_max: 1 << 16,
        arguments_max: 10,
        argument_bytes_max: 1 << 14,
        line_bytes_max: 1 << 14,
    };

    fn is_small(&self) -> bool {
        self.arguments_max <= Self::BEFORE_PASSWORD.arguments_max
    }
}

/// Arguments below this are copied, so that they do not keep the buffer that they came in.
const COPIED_BYTES_MAX: usize = 1 << 10;

/// What an argument costs beside its bytes.
const ARGUMENT_BYTES: usize = 48;

/// Bytes that are no request. After this only closing the connection helps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtocolError(String);

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ERR Protocol error: {}", self.0)
    }
}

impl std::error::Error for ProtocolError {}

fn refuse<T>(text: impl Into<String>) -> Result<T, ProtocolError> {
    Err(ProtocolError(text.into()))
}

/// What is known of the request that is coming in.
#[derive(Debug, Default)]
pub struct Decoder {
    arguments: Vec<Bytes>,
    /// How many more come; 0 between requests.
    missing: usize,
    /// How long the next one is, if that was read.
    next_bytes: Option<usize>,
    /// Bytes of those that are here, and of the next.
    bytes: usize,
}

impl Decoder {
    /// Whether a part of a request was taken from the buffer and the rest is missing.
    pub fn is_within(&self) -> bool {
        self.missing > 0
    }

    /// What it keeps of a request that is not whole yet.
    pub fn kept_bytes(&self) -> usize {
        let arguments = self.arguments.capacity().saturating_mul(ARGUMENT_BYTES);
        if self.is_within() { self.bytes.saturating_add(arguments) } else { 0 }
    }

    /// Takes one request from the front of the buffer; none if it is not whole yet.
    pub fn decode(
        &mut self,
        buffer: &mut BytesMut,
        bounds: &Bounds,
    ) -> Result<Option<Request>, ProtocolError> {
        while self.missing == 0 {
            let request = match buffer.first() {
                None => return Ok(None),
                Some(b'*') => {
                    if !self.begin(buffer, bounds)? {
                        return Ok(None);
                    }
                    continue;
                }
                Some(_) => typed(buffer, bounds)?,
            };
            match request {
                None => return Ok(None),
                Some(words) if words.is_empty() => {}
                Some(words) => return Ok(Some(words)),
            }
        }
        while self.missing > 0 {
            if !self.argument(buffer, bounds)? {
                return Ok(None);
            }
        }
        self.bytes = 0;
        Ok(Some(std::mem::take(&mut self.arguments)))
    }

    /// `*3`. Says whether the line was there.
    fn begin(&mut self, buffer: &mut BytesMut, bounds: &Bounds) -> Result<bool, ProtocolError> {
        let Some(line) = number_line(buffer, bounds, "too big mbulk count string")? else {
            return Ok(false);
        };
        let count = integer(&line).filter(|count| *count <= i64::from(i32::MAX));
        let Some(count) = count else { return refuse("invalid multibulk length") };
        let count = usize::try_from(count).unwrap_or(0);
        if count > bounds.arguments_max {
            return refuse(if bounds.is_small() {
                "unauthenticated multibulk length"
            } else {
                "invalid multibulk length"
            });
        }
        self.missing = count;
        Ok(true)
    }

    /// `$3 abc`. Says whether all of it was there.
    fn argument(&mut self, buffer: &mut BytesMut, bounds: &Bounds) -> Result<bool, ProtocolError> {
        let len = match self.next_bytes {
            Some(len) => len,
            None => {
                match buffer.first() {
                    None => return Ok(false),
                    Some(b'$') => {}
                    Some(other) => {
                        let shown = (*other as char).escape_default();
                        return refuse(format!("expected '$', got '{shown}'"));
                    }
                }
                let line = number_line(buffer, bounds, "too big bulk count string")?;
                let Some(line) = line else { return Ok(false) };
                let len = integer(&line).and_then(|len| usize::try_from(len).ok());
                let Some(len) = len else { return refuse("invalid bulk length") };
                if len > bounds.argument_bytes_max {
                    return refuse(if bounds.is_small() {
                        "unauthenticated bulk length"
                    } else {
                        "invalid bulk length"
                    });
                }
                self.bytes = self.bytes.saturating_add(len);
                if self.bytes > bounds.request_bytes_max {
                    return refuse("too big request");
                }
                self.next_bytes = Some(len);
                len
            }
        };
        if buffer.len() < len.saturating_add(2) {
            buffer.reserve(len.saturating_add(2).saturating_sub(buffer.len()));
            return Ok(false);
        }
        let argument = buffer.split_to(len);
        // A part of the buffer keeps all of it.
        let small = argument.len() < COPIED_BYTES_MAX;
        let argument = if small { Bytes::copy_from_slice(&argument) } else { argument.freeze() };
        if !buffer.starts_with(b"\r\n") {
            return refuse("a bulk string must end with CRLF");
        }
        buffer.advance(2);
        self.arguments.push(argument);
        self.next_bytes = None;
        self.missing = self.missing.saturating_sub(1);
        Ok(true)
    }
}

/// The rest of a line that begins with `*` or `$`; it must end with CRLF.
fn number_line(
    buffer: &mut BytesMut,
    bounds: &Bounds,
    too_long: &str,
) -> Result<Option<Bytes>, ProtocolError> {
    // The longest number that is right has 20 digits; Redis reads on for much longer.
    let end = buffer.iter().take(bounds.line_bytes_max).position(|byte| *byte == b'\r');
    let Some(end) = end else {
        return if buffer.len() >= bounds.line_bytes_max { refuse(too_long) } else { Ok(None) };
    };
    if buffer.len() < end.saturating_add(2) {
        return Ok(None);
    }
    let line = buffer.split_to(end).freeze().slice(1..);
    // Redis does not look at what follows the carriage return.
    buffer.advance(2);
    Ok(Some(line))
}

/// A line typed by hand: words, some of them in quotes. None if it has not ended yet.
fn typed(buffer: &mut BytesMut, bounds: &Bounds) -> Result<Option<Request>, ProtocolError> {
    let end = buffer.iter().take(bounds.line_bytes_max).position(|byte| *byte == b'\n');
    let Some(end) = end else {
        let too_long = buffer.len() >= bounds.line_bytes_max;
        return if too_long { refuse("too big inline request") } else { Ok(None) };
    };
    let line = buffer.split_to(end);
    buffer.advance(1);
    let line = line.strip_suffix(b"\r").unwrap_or(&line);
    let Some(words) = words(line) else { return refuse("unbalanced quotes in request") };
    if words.len() > bounds.arguments_max {
        return refuse("too big inline request");
    }
    Ok(Some(words))
}

/// Splits a line; none if a quote has no end, or is followed by something else than a space.
fn words(line: &[u8]) -> Option<Vec<Bytes>> {
    let mut rest = line.iter().copied().peekable();
    let mut words = Vec::new();
    loop {
        while rest.next_if(u8::is_ascii_whitespace).is_some() {}
        let Some(first) = rest.next() else { return Some(words) };
        let mut word = Vec::new();
        let mut byte = Some(first);
        while let Some(now) = byte {
            match now {
                b'"' => double_quoted(&mut rest, &mut word)?,
                b'\'' => single_quoted(&mut rest, &mut word)?,
                plain => word.push(plain),
            }
            let closed = matches!(now, b'"' | b'\'');
            byte = match rest.peek() {
                Some(next) if !next.is_ascii_whitespace() => {
                    if closed {
                        return None;
                    }
                    rest.next()
                }
                _ => None,
            };
        }
        words.push(Bytes::from(word));
    }
}

fn double_quoted(rest: &mut impl Iterator<Item = u8>, word: &mut Vec<u8>) -> Option<()> {
    loop {
        match rest.next()? {
            b'"' => return Some(()),
            b'\\' => match rest.next()? {
                b'n' => word.push(b'\n'),
                b'r' => word.push(b'\r'),
                b't' => word.push(b'\t'),
                b'b' => word.push(8),
                b'a' => word.push(7),
                b'x' => {
                    let (high, low) = (rest.next()?, rest.next()?);
                    match (hex(high), hex(low)) {
                        (Some(high), Some(low)) => word.push(high << 4 | low),
                        _ => word.extend_from_slice(&[b'x', high, low]),
                    }
                }
                other => word.push(other),
            },
            plain => word.push(plain),
        }
    }
}

fn single_quoted(rest: &mut Peekable<impl Iterator<Item = u8>>, word: &mut Vec<u8>) -> Option<()> {
    loop {
        match rest.next()? {
            b'\'' => return Some(()),
            b'\\' if rest.next_if_eq(&b'\'').is_some() => word.push(b'\''),
            plain => word.push(plain),
        }
    }
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).and_then(|value| u8::try_from(value).ok())
}
