//! Jute, ZooKeeper's encoding. Numbers are big-endian; strings, buffers and vectors start with
//! their length, where -1 means null.

use std::fmt;

/// Why bytes could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl Malformed {
    /// Unknown flags in a create, for which ZooKeeper has an error code of its own.
    pub const NO_SUCH_KIND: Self = Self("unknown kind of znode");
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

/// Decodes bytes from the start.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader at the start of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) =
            self.rest.split_first_chunk::<N>().ok_or(Malformed("it is truncated"))?;
        self.rest = rest;
        Ok(*array)
    }

    /// 4 bytes.
    pub fn int(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    /// 8 bytes.
    pub fn long(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    /// 8 bytes that must not be negative: a zxid or a time.
    pub fn unsigned(&mut self) -> Result<u64, Malformed> {
        u64::try_from(self.long()?).map_err(|_| Malformed("a number is negative"))
    }

    /// 1 byte.
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        let [byte] = self.array()?;
        Ok(byte != 0)
    }

    /// Bytes. `None` if the buffer is null.
    pub fn buffer(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let len = match self.int()? {
            -1 => return Ok(None),
            len => usize::try_from(len).map_err(|_| Malformed("a length is negative"))?,
        };
        let (buffer, rest) =
            self.rest.split_at_checked(len).ok_or(Malformed("a length is beyond the end"))?;
        self.rest = rest;
        Ok(Some(buffer))
    }

    /// A string. Null is an error.
    pub fn text(&mut self) -> Result<String, Malformed> {
        Self::utf8(self.buffer()?.ok_or(Malformed("a string is null"))?)
    }

    /// A string. Null becomes an empty one.
    pub fn text_or_null(&mut self) -> Result<String, Malformed> {
        Self::utf8(self.buffer()?.unwrap_or_default())
    }

    fn utf8(bytes: &[u8]) -> Result<String, Malformed> {
        let text = std::str::from_utf8(bytes).map_err(|_| Malformed("a string is not UTF-8"))?;
        Ok(text.to_owned())
    }

    /// A vector. Null becomes an empty one.
    pub fn vector<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let len = match self.int()? {
            -1 => 0,
            len => usize::try_from(len).map_err(|_| Malformed("a length is negative"))?,
        };
        // Every element has at least one byte: a length that can't be true must not allocate
        // memory.
        if len > self.rest.len() {
            return Err(Malformed("a length is beyond the end"));
        }
        (0..len).map(|_| one(self)).collect()
    }

    /// A vector of strings.
    pub fn texts(&mut self) -> Result<Vec<String>, Malformed> {
        self.vector(Self::text)
    }
}

/// Encodes one frame, with its length in front.
#[derive(Debug)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Default for Writer {
    fn default() -> Self {
        Self { bytes: vec![0; 4] }
    }
}

impl Writer {
    /// 4 bytes.
    pub fn int(&mut self, number: i32) -> &mut Self {
        self.bytes.extend_from_slice(&number.to_be_bytes());
        self
    }

    /// 8 bytes.
    pub fn long(&mut self, number: i64) -> &mut Self {
        self.bytes.extend_from_slice(&number.to_be_bytes());
        self
    }

    /// A zxid or a time.
    pub fn unsigned(&mut self, number: u64) -> &mut Self {
        self.long(number.cast_signed())
    }

    /// 1 byte.
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.bytes.push(u8::from(value));
        self
    }

    fn len(&mut self, len: usize) -> &mut Self {
        self.int(i32::try_from(len).unwrap_or(i32::MAX))
    }

    /// Bytes. `None` is written as null.
    pub fn buffer(&mut self, buffer: Option<&[u8]>) -> &mut Self {
        match buffer {
            Some(buffer) => {
                self.len(buffer.len());
                self.bytes.extend_from_slice(buffer);
                self
            }
            None => self.int(-1),
        }
    }

    /// A string.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.buffer(Some(text.as_bytes()))
    }

    /// A vector.
    pub fn vector<T>(&mut self, some: &[T], mut one: impl FnMut(&mut Self, &T)) -> &mut Self {
        self.len(some.len());
        for item in some {
            one(self, item);
        }
        self
    }

    /// A vector of strings.
    pub fn texts(&mut self, texts: &[String]) -> &mut Self {
        self.vector(texts, |writer, text| {
            writer.text(text);
        })
    }

    /// The finished frame.
    pub fn frame(mut self) -> Vec<u8> {
        let len = self.bytes.len().saturating_sub(4);
        let len = i32::try_from(len).unwrap_or(i32::MAX).to_be_bytes();
        if let Some(place) = self.bytes.first_chunk_mut::<4>() {
            *place = len;
        }
        self.bytes
    }
}
