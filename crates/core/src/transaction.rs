//! Keys, and the one command that changes several of them at once.
//!
//! Doors like Redis's know keys, not lines. A key is a name as such a door sees it: the label of
//! the lock's first holder as a text, or an object, or nothing. Such a door computes its result
//! from keys as it read them, and then submits one [`Transaction`]: if what was read is unchanged,
//! all writes are applied; if not, none is.

use crate::command::Door;
use crate::ids::Token;
use crate::text::{Channel, Element, Label, LockName, Message};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was read, and what to write if that has not changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    /// Where it came from: tickets are drawn for this door, and those of other doors are not
    /// changed.
    pub door: Door,
    /// Every key that was read, and its stamp.
    pub seen: Vec<(LockName, Stamp)>,
    /// If all keys were listed or counted: [`State::keys_changed`](crate::State::keys_changed) at
    /// that time.
    pub seen_all: Option<u64>,
    /// The writes, each key once.
    pub writes: Vec<Write>,
    /// Messages to publish, after all writes.
    pub publish: Vec<(Channel, Message)>,
}

/// The state of a key. Two equal stamps mean that nothing that [`State::key`](crate::State::key)
/// shows has changed; only time may have passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stamp {
    /// Neither held nor an object.
    Absent,
    /// A held lock.
    Text {
        /// The first holder.
        token: Token,
        /// The number of holders.
        holders: u32,
        /// The number of waiters.
        waiting: u32,
        /// The last ticket in its line. With the numbers of holders and waiters it identifies the
        /// whole line: a ticket that joins has a higher number.
        last: Token,
        /// When the first holder's lease ends.
        due_ms: Option<u64>,
        /// Whether the first holder is the only one that may hold it, and has been notified.
        exclusive: bool,
        /// The change at which the first holder was relabelled; 0 if it has its original label.
        relabelled: u64,
    },
    /// An object.
    Object {
        /// A new one for every write.
        version: u64,
    },
}

/// One key's new content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Which key.
    pub name: LockName,
    /// What to write.
    pub to: WriteOp,
}

/// What to write to a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteOp {
    /// A text. If there is nothing, this is a try: an exclusive ticket is drawn. If there is the
    /// same text, its ticket stays and only the lease is set. A different text is a change of
    /// holder: the ticket ends as forced and a new one is drawn.
    Text {
        /// The label of the ticket.
        value: Label,
        /// How long it lasts.
        expiry: Expiry,
        /// The previous content was deleted within the transaction: it ends as released, and what
        /// was known about it does not count. Without this, an object is not replaced by a text.
        fresh: bool,
    },
    /// Another text under the same ticket: the holder stays, with a new label.
    Relabel {
        /// The new label.
        value: Label,
        /// How long it lasts.
        expiry: Expiry,
    },
    /// A hash or a list, with its whole content; an empty one is removed.
    Object {
        /// The whole content.
        object: Object,
        /// How long it lasts.
        expiry: Expiry,
        /// The previous content was deleted within the transaction. Without this, a text, or an
        /// object of the other kind, is not replaced.
        fresh: bool,
    },
    /// Keeps the content and changes how long it lasts; no effect if there is nothing.
    Expiring(Expiry),
    /// Removes the key. A ticket ends as released, or as forced.
    Gone {
        /// Whether someone other than the holder did it.
        forced: bool,
    },
}

/// How long a key lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expiry {
    /// As long as the previous content; forever if there was none.
    Keep,
    /// Forever.
    Never,
    /// For this long from now, in logical time.
    AfterMs(u64),
}

/// Something that is stored under a name and is not a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Object {
    /// Values by field.
    Hash(BTreeMap<Element, Element>),
    /// Items in order.
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

    /// How many byte strings it consists of: a field of a hash counts as two.
    pub(crate) fn elements(&self) -> usize {
        match self {
            Self::Hash(fields) => fields.len().saturating_mul(2),
            Self::List(items) => items.len(),
        }
    }

    /// Whether it is empty: then it is removed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of its whole content.
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
                WriteOp::Text { value, .. } | WriteOp::Relabel { value, .. } => {
                    value.as_bytes().len()
                }
                WriteOp::Object { object, .. } => object.bytes(),
                WriteOp::Expiring(_) | WriteOp::Gone { .. } => 0,
            };
            name.as_bytes().len().saturating_add(content)
        });
        let publish = self.publish.iter().map(|(channel, message)| {
            channel.as_bytes().len().saturating_add(message.as_bytes().len())
        });
        seen.chain(writes).chain(publish).fold(0, usize::saturating_add)
    }
}
