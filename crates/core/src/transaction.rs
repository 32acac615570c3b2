//! Keys, and the one command that changes several of them at once.
//!
//! Doors like Redis's know keys, not lines. A key is a name as such a door sees it: the text that
//! the first holder of the lock calls itself, or an object, or nothing. Whatever such a door
//! computes, it computes from keys as it read them, and then asks for one [`Transaction`]: if what
//! was read still stands so, all that was written is applied; if not, nothing is.

use crate::command::Door;
use crate::ids::Token;
use crate::text::{Channel, Element, Label, LockName, Message};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was read, and what is to be written if that has not changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    /// Where it came in: tickets are drawn for this door, and no other door's are touched.
    pub door: Door,
    /// Every key that was read, and how it stood.
    pub seen: Vec<(LockName, Stamp)>,
    /// If all keys were listed or counted: [`State::keys_changed`](crate::State::keys_changed)
    /// then.
    pub seen_all: Option<u64>,
    /// What is written, each key once.
    pub writes: Vec<Write>,
    /// What is said to whoever listens, after all writes.
    pub publish: Vec<(Channel, Message)>,
}

/// How a key stood. Two equal stamps mean that nothing has changed that
/// [`State::key`](crate::State::key) shows; only time may have passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stamp {
    /// Neither held nor an object.
    Absent,
    /// A held lock.
    Text {
        /// The first holder.
        token: Token,
        /// How many hold it.
        holders: u32,
        /// How many wait for it.
        waiting: u32,
        /// The last ticket in its line. With the numbers of holders and waiters it stands for the
        /// whole line: whoever joins has a higher number.
        last: Token,
        /// When the first holder's lease ends.
        due_ms: Option<u64>,
        /// Whether the first holder is the only one that may hold it, and has been told so.
        exclusive: bool,
        /// At which change the first holder got another label; 0 if it has its first one.
        relabelled: u64,
    },
    /// An object.
    Object {
        /// Drawn anew by every write.
        version: u64,
    },
}

/// One key's new content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Which key.
    pub name: LockName,
    /// What becomes of it.
    pub to: To,
}

/// What becomes of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum To {
    /// A text. If nothing stands there, a try: an exclusive ticket is drawn. If the same text
    /// stands there, its ticket stays and only the lease is set. Another text is a change of
    /// holder: the ticket ends as forced and a new one is drawn.
    Text {
        /// The label of the ticket.
        value: Label,
        /// How long it stays.
        expiry: Expiry,
        /// What stood there was deleted on the way: it ends as released and whatever was known of
        /// it does not count. Without this, an object is not replaced by a text.
        fresh: bool,
    },
    /// Another text under the same ticket: the holder stays and calls itself something else.
    Relabel {
        /// The new label.
        value: Label,
        /// How long it stays.
        expiry: Expiry,
    },
    /// A hash or a list, with all that is in it from now on; an empty one is gone.
    Object {
        /// The whole content.
        object: Object,
        /// How long it stays.
        expiry: Expiry,
        /// What stood there was deleted on the way. Without this, a text, or an object of the
        /// other kind, is not replaced.
        fresh: bool,
    },
    /// What stands there stays, but for another time; nothing if nothing stands there.
    Expiring(Expiry),
    /// Nothing stands there any more. A ticket ends as released, or as forced.
    Gone {
        /// Whether somebody else than the holder did it.
        forced: bool,
    },
}

/// How long a key stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expiry {
    /// As long as what stood there; for ever if nothing did.
    Keep,
    /// For ever.
    Never,
    /// For so long from now, in logical time.
    AfterMs(u64),
}

/// What is kept under a name that is not a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Object {
    /// Values by field.
    Hash(BTreeMap<Element, Element>),
    /// One after the other.
    List(Vec<Element>),
}

/// What a key can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyKind {
    /// A held lock, or one that is waited for.
    Text,
    /// A hash.
    Hash,
    /// A list.
    List,
}

impl Object {
    /// A hash or a list.
    pub fn kind(&self) -> KeyKind {
        match self {
            Self::Hash(_) => KeyKind::Hash,
            Self::List(_) => KeyKind::List,
        }
    }

    /// How many fields or items it has.
    pub fn len(&self) -> usize {
        match self {
            Self::Hash(fields) => fields.len(),
            Self::List(items) => items.len(),
        }
    }

    /// How many byte strings it consists of: a field of a hash is two.
    pub(crate) fn elements(&self) -> usize {
        match self {
            Self::Hash(fields) => fields.len().saturating_mul(2),
            Self::List(items) => items.len(),
        }
    }

    /// Whether nothing is in it: then it is gone.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of all that is in it.
    pub fn bytes(&self) -> usize {
        let sum = |sum: usize, element: &Element| sum.saturating_add(element.as_bytes().len());
        match self {
            Self::Hash(fields) => {
                fields.iter().flat_map(|(field, value)| [field, value]).fold(0, sum)
            }
            Self::List(items) => items.iter().fold(0, sum),
        }
    }
}

impl Transaction {
    /// The bytes of all texts in it.
    pub(crate) fn bytes(&self) -> usize {
        let seen = self.seen.iter().map(|(name, _)| name.as_bytes().len());
        let writes = self.writes.iter().map(|Write { name, to }| {
            let content = match to {
                To::Text { value, .. } | To::Relabel { value, .. } => value.as_bytes().len(),
                To::Object { object, .. } => object.bytes(),
                To::Expiring(_) | To::Gone { .. } => 0,
            };
            name.as_bytes().len().saturating_add(content)
        });
        let publish = self.publish.iter().map(|(channel, message)| {
            channel.as_bytes().len().saturating_add(message.as_bytes().len())
        });
        seen.chain(writes).chain(publish).fold(0, usize::saturating_add)
    }
}
