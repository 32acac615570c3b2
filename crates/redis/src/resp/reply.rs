//! What goes back to a client, before it is written in one of the two protocols.

use crate::error::Error;
use bytes::Bytes;

/// Which version of the protocol a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// The old one: what a client speaks until it says otherwise.
    #[default]
    Resp2,
    /// The one with maps, sets, doubles and messages out of turn.
    Resp3,
}

/// One reply. Kinds that RESP2 does not know are written as the nearest that it does.
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
    /// Nothing, where a text would be.
    Null,
    /// Nothing, where an array would be.
    NullArray,
    /// One after the other.
    Array(Vec<Reply>),
    /// Pairs; RESP2 has a flat array of them.
    Map(Vec<(Reply, Reply)>),
    /// An array whose order means nothing.
    Set(Vec<Reply>),
    /// What nobody asked for at this moment; RESP2 has an array.
    Push(Vec<Reply>),
    /// `#t`; RESP2 has 1 or 0.
    Boolean(bool),
    /// `,3.5`; RESP2 has a text.
    Double(f64),
    /// A number of any length, as a text.
    BigNumber(Bytes),
    /// A text for people, with three letters that say what it is.
    Verbatim([u8; 3], Bytes),
}

/// What a reply takes in memory beside its text.
const REPLY_BYTES: usize = 48;

impl Reply {
    /// About how many bytes of memory it takes.
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

    /// A status.
    pub fn status(text: impl Into<Bytes>) -> Self {
        Self::Status(text.into())
    }

    /// A text.
    pub fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(Bytes::copy_from_slice(bytes.as_ref()))
    }

    /// A number of things.
    pub fn count(count: usize) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Texts.
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
    /// 1 or 0, as commands have said it since before there were booleans.
    fn from(yes: bool) -> Self {
        Self::Integer(i64::from(yes))
    }
}
