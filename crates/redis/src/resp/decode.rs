//! Decodes bytes to requests: arrays of bulk strings, or inline commands.
//!
//! The decoder remembers what it has parsed of an incomplete request, so that bytes that arrive in
//! small pieces are scanned only once.

use crate::number::integer;
use bytes::{Buf, Bytes, BytesMut};
use std::fmt;
use std::iter::Peekable;

/// A request: the name of a command and its arguments. Never empty.
pub type Request = Vec<Bytes>;

/// How large a request may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of all arguments together. A transaction has at most half a MiB, and a script comes on
    /// top.
    pub request_bytes_max: usize,
    /// Arguments, including the name of the command.
    pub arguments_max: usize,
    /// Bytes of one argument.
    pub argument_bytes_max: usize,
    /// Bytes of a line: the longest inline request, or a line with a number.
    pub line_bytes_max: usize,
}

impl Bounds {
    /// For clients that have authenticated, or need not.
    pub const DEFAULT: Self = Self {
        request_bytes_max: 1 << 20,
        arguments_max: 8_192,
        argument_bytes_max: 1 << 19,
        line_bytes_max: 1 << 16,
    };

    /// For clients that have yet to authenticate: just enough to do so. The numbers are Redis's.
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

/// Arguments below this size are copied, so that they do not hold on to the buffer they arrived in.
const COPIED_BYTES_MAX: usize = 1 << 10;

/// What an argument costs in addition to its bytes.
const ARGUMENT_BYTES: usize = 48;

/// Bytes that are not a request. The connection can only be closed.
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

/// Decodes requests incrementally.
#[derive(Debug, Default)]
pub struct Decoder {
    arguments: Vec<Bytes>,
    /// How many more arguments to come; 0 between requests.
    missing: usize,
    /// The length of the next argument, if it has been read.
    next_bytes: Option<usize>,
    /// Bytes of the arguments so far, and of the next.
    bytes: usize,
}

impl Decoder {
    /// Whether part of a request was taken from the buffer and the rest is missing.
    pub fn is_within(&self) -> bool {
        self.missing > 0
    }

    /// Bytes kept for an incomplete request.
    pub fn kept_bytes(&self) -> usize {
        let arguments = self.arguments.capacity().saturating_mul(ARGUMENT_BYTES);
        if self.is_within() { self.bytes.saturating_add(arguments) } else { 0 }
    }

    /// Takes one request from the front of the buffer; `None` if it is incomplete.
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

    /// Parses `*3`. Returns whether the line was complete.
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

    /// Parses `$3 abc`. Returns whether all of it was there.
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
        // A slice of the buffer would keep all of it alive.
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

/// The rest of a line that starts with `*` or `$`; it must end with CRLF.
fn number_line(
    buffer: &mut BytesMut,
    bounds: &Bounds,
    too_long: &str,
) -> Result<Option<Bytes>, ProtocolError> {
    // The longest valid number has 20 digits; Redis reads on for much longer.
    let end = buffer.iter().take(bounds.line_bytes_max).position(|byte| *byte == b'\r');
    let Some(end) = end else {
        return if buffer.len() >= bounds.line_bytes_max { refuse(too_long) } else { Ok(None) };
    };
    if buffer.len() < end.saturating_add(2) {
        return Ok(None);
    }
    let line = buffer.split_to(end).freeze().slice(1..);
    // Redis does not check what follows the carriage return.
    buffer.advance(2);
    Ok(Some(line))
}

/// Parses an inline command: words, some of them quoted. `None` if the line is incomplete.
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

/// Splits a line into words; `None` if a quote is unterminated, or followed by something other than
/// a space.
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
