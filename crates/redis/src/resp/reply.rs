//! Replies, independent of the protocol version they are encoded in.

use crate::error::Error;
use bytes::Bytes;

/// The protocol version that a client uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// The default until a client sends `HELLO 3`.
    #[default]
    Resp2,
    /// The version with maps, sets, doubles and push messages.
    Resp3,
}

/// One reply. Types that RESP2 does not have are encoded as the nearest that it has.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// `+OK`.
    Status(Bytes),
    /// `-ERR ...`.
    Error(Error),
    /// `:1`.
    Integer(i64),
    /// `$3 abc`.
    Bulk(Bytes),
    /// Null in place of a string.
    Null,
    /// Null in place of an array.
    NullArray,
    /// `*2 ...`.
    Array(Vec<Reply>),
    /// Pairs; a flat array in RESP2.
    Map(Vec<(Reply, Reply)>),
    /// An unordered array.
    Set(Vec<Reply>),
    /// An out-of-band message; an array in RESP2.
    Push(Vec<Reply>),
    /// `#t`; 1 or 0 in RESP2.
    Boolean(bool),
    /// `,3.5`; a string in RESP2.
    Double(f64),
    /// A number of any length, as text.
    BigNumber(Bytes),
    /// Text for people, with a three-letter type.
    Verbatim([u8; 3], Bytes),
}

/// What a reply takes in memory in addition to its text.
const REPLY_BYTES: usize = 48;

impl Reply {
    /// Roughly how many bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        let all = |items: &[Self]| items.iter().map(Self::bytes).fold(0, usize::saturating_add);
        let inside = match self {
            Self::Status(text) | Self::Bulk(text) | Self::BigNumber(text) => text.len(),
            Self::Verbatim(_, text) => text.len(),
            Self::Error(error) => error.as_bytes().len(),
            Self::Array(items) | Self::Set(items) | Self::Push(items) => all(items),
            Self::Map(pairs) => pairs
                .iter()
                .map(|(key, value)| key.bytes().saturating_add(value.bytes()))
                .fold(0, usize::saturating_add),
            Self::Integer(_)
            | Self::Null
            | Self::NullArray
            | Self::Boolean(_)
            | Self::Double(_) => 0,
        };
        inside.saturating_add(REPLY_BYTES)
    }

    /// `+OK`.
    pub const OK: Self = Self::Status(Bytes::from_static(b"OK"));

    /// A status reply.
    pub fn status(text: impl Into<Bytes>) -> Self {
        Self::Status(text.into())
    }

    /// A bulk string.
    pub fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(Bytes::copy_from_slice(bytes.as_ref()))
    }

    /// An integer reply with a count.
    pub fn count(count: usize) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// An array of bulk strings.
    pub fn bulks<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::Array(texts.into_iter().map(Self::bulk).collect())
    }

    /// Whether it is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

impl From<Error> for Reply {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<bool> for Reply {
    /// 1 or 0, as commands have replied since before there were booleans.
    fn from(yes: bool) -> Self {
        Self::Integer(i64::from(yes))
    }
}
