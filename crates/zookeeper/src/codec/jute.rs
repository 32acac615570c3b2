//! Jute: ZooKeeper's encoding. Numbers are big endian; texts, buffers and vectors begin with their
//! length, and -1 is null.

use std::fmt;

/// Why bytes are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl Malformed {
    /// The flags of a create mean nothing. ZooKeeper has an error of its own for this.
    pub const NO_SUCH_KIND: Self = Self("there is no such kind of znode");
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

/// Reads what is encoded, from its beginning.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// At the beginning of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) =
            self.rest.split_first_chunk::<N>().ok_or(Malformed("it ends in the middle"))?;
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

    /// A zxid or a time, which is never below 0.
    pub fn unsigned(&mut self) -> Result<u64, Malformed> {
        u64::try_from(self.long()?).map_err(|_| Malformed("a number is below 0"))
    }

    /// 1 byte.
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        let [byte] = self.array()?;
        Ok(byte != 0)
    }

    /// Bytes; none is null.
    pub fn buffer(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let len = match self.int()? {
            -1 => return Ok(None),
            len => usize::try_from(len).map_err(|_| Malformed("a length is below 0"))?,
        };
        let (buffer, rest) =
            self.rest.split_at_checked(len).ok_or(Malformed("a length is beyond the end"))?;
        self.rest = rest;
        Ok(Some(buffer))
    }

    /// Text; null is an error.
    pub fn text(&mut self) -> Result<String, Malformed> {
        Self::utf8(self.buffer()?.ok_or(Malformed("a text is null"))?)
    }

    /// Text; null is an empty one.
    pub fn text_or_null(&mut self) -> Result<String, Malformed> {
        Self::utf8(self.buffer()?.unwrap_or_default())
    }

    fn utf8(bytes: &[u8]) -> Result<String, Malformed> {
        let text = std::str::from_utf8(bytes).map_err(|_| Malformed("a text is not UTF-8"))?;
        Ok(text.to_owned())
    }

    /// Some of the same kind; null is none of them.
    pub fn vector<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let len = match self.int()? {
            -1 => 0,
            len => usize::try_from(len).map_err(|_| Malformed("a length is below 0"))?,
        };
        // Each has a byte at least: a long vector of nothing is refused before it takes memory.
        if len > self.rest.len() {
            return Err(Malformed("a length is beyond the end"));
        }
        (0..len).map(|_| one(self)).collect()
    }

    /// Texts.
    pub fn texts(&mut self) -> Result<Vec<String>, Malformed> {
        self.vector(Self::text)
    }
}

/// Writes one frame: its length comes first, and is known last.
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

    /// Bytes; none is null.
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

    /// Text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.buffer(Some(text.as_bytes()))
    }

    /// Some of the same kind.
    pub fn vector<T>(&mut self, some: &[T], mut one: impl FnMut(&mut Self, &T)) -> &mut Self {
        self.len(some.len());
        for item in some {
            one(self, item);
        }
        self
    }

    /// Texts.
    pub fn texts(&mut self, texts: &[String]) -> &mut Self {
        self.vector(texts, |writer, text| {
            writer.text(text);
        })
    }

    /// The whole frame.
    pub fn frame(mut self) -> Vec<u8> {
        let len = self.bytes.len().saturating_sub(4);
        let len = i32::try_from(len).unwrap_or(i32::MAX).to_be_bytes();
        if let Some(place) = self.bytes.first_chunk_mut::<4>() {
            *place = len;
        }
        self.bytes
    }
}
