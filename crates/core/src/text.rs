//! Bounded byte strings: parsed once when they come in, cheap to share inside.
//!
//! Every name, label, note and value in the core is one of these. They are reference-counted,
//! because one label may be in a ticket, an ending, the history and an effect at once.

use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::ser::{Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// Why bytes are not a name, label, note, value or request key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadText {
    /// What was being parsed, in the terms of the glossary.
    pub what: &'static str,
    /// How many bytes were given.
    pub len: usize,
    /// The fewest bytes allowed.
    pub min: usize,
    /// The most bytes allowed.
    pub max: usize,
}

impl fmt::Display for BadText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, len, min, max } = self;
        write!(f, "a {what} has {min} to {max} bytes, this one has {len}")
    }
}

impl std::error::Error for BadText {}

/// Shows bytes as text: as they are if they are printable UTF-8, else escaped.
fn show(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => f.write_str(text),
        _ => write!(f, "{}", bytes.escape_ascii()),
    }
}

macro_rules! bounded_bytes {
    ($(#[$doc:meta])* $name:ident, $what:literal, $min:expr, $max:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<[u8]>);

        impl $name {
            /// The fewest bytes allowed.
            pub const BYTES_MIN: usize = $min;
            /// The most bytes allowed.
            pub const BYTES_MAX: usize = $max;

            /// Accepts the bytes if their number is within the bounds.
            pub fn parse(bytes: impl AsRef<[u8]>) -> Result<Self, BadText> {
                let bytes = bytes.as_ref();
                if (Self::BYTES_MIN..=Self::BYTES_MAX).contains(&bytes.len()) {
                    Ok(Self(Arc::from(bytes)))
                } else {
                    let (min, max) = (Self::BYTES_MIN, Self::BYTES_MAX);
                    Err(BadText { what: $what, len: bytes.len(), min, max })
                }
            }

            /// The bytes as given.
            pub fn as_bytes(&self) -> &[u8] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                show(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"")?;
                show(&self.0, f)?;
                f.write_str("\"")
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_bytes(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Bytes;
                impl Visitor<'_> for Bytes {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($what)
                    }
                    fn visit_bytes<E: serde::de::Error>(self, v: &[u8]) -> Result<$name, E> {
                        $name::parse(v).map_err(E::custom)
                    }
                }
                deserializer.deserialize_bytes(Bytes).map_err(D::Error::custom)
            }
        }
    };
}

bounded_bytes!(
    /// The name of a lock. `/` groups names (`shop/seat-12A`); the core itself sees only bytes.
    ///
    /// ```
    /// use holdfast_core::LockName;
    ///
    /// assert!(LockName::parse("shop/seat-12A").is_ok());
    /// let error = LockName::parse("").unwrap_err();
    /// assert_eq!(error.to_string(), "a lock name has 1 to 512 bytes, this one has 0");
    /// ```
    LockName, "lock name", 1, 512
);
bounded_bytes!(
    /// The name that a holder gives itself: a Redis value, a client id, `host:pid`.
    Label, "label", 0, 4096
);

impl Label {
    /// The label of a holder without one, as a text.
    pub(crate) fn empty() -> Self {
        Self(Arc::from([]))
    }
}

bounded_bytes!(
    /// A few bytes that the holder leaves on the lock: who it is, how far it got.
    Note, "note", 0, 4096
);
bounded_bytes!(
    /// A value in the fenced register.
    Value, "register value", 0, 65_536
);
bounded_bytes!(
    /// A field or a value of a hash, or an item of a list.
    Element, "field, value or item", 0, 65_536
);
bounded_bytes!(
    /// Where messages are published: clients that subscribe to it receive them.
    Channel, "channel", 0, 512
);
bounded_bytes!(
    /// A published message.
    Message, "message", 0, 65_536
);
bounded_bytes!(
    /// The data of a znode.
    NodeData, "znode's data", 0, 1 << 19
);
bounded_bytes!(
    /// Why someone broke a lock or asked for it: for people to read.
    Reason, "reason", 0, 512
);
bounded_bytes!(
    /// A request id without a session: a random string. Anyone who knows it gets the ticket's
    /// secret, so it must be too long to guess.
    RequestKey, "request id without a session", 16, 128
);
