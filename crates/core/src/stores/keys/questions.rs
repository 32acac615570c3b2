//! Keys as a door like the Redis one sees them. Queries only: they change nothing.

use super::Keys;
use crate::command::Door;
use crate::ids::Token;
use crate::lines::{HolderView, StoreAccess};
use crate::text::{Label, LockName};
use crate::transaction::{KeyKind, Object, Stamp};
use std::sync::Arc;

/// The content of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// Nothing: it is neither held nor an object. It may still have waiters, during a lock-delay,
    /// and then it can't be written.
    Absent,
    /// A held lock, from any door.
    Text(TextKey),
    /// A hash or a list.
    Object(ObjectKey),
}

/// A held lock as a text: the label of its first holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextKey {
    /// The label of the first holder; empty if it has none.
    pub value: Label,
    /// Its token.
    pub token: Token,
    /// When its lease ends, in logical time; `None` if it has no deadline.
    pub due_ms: Option<u64>,
    /// The door through which it was acquired.
    pub door: Door,
    /// How many waiters it has.
    pub waiting: usize,
    /// Whether a transaction through the same door may write it. Not if its label is not enough
    /// proof: it has a secret, depends on a session, is not exclusive or has several names.
    pub writable: bool,
}

/// An object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectKey {
    /// Its whole content.
    pub object: Arc<Object>,
    /// Different after every write.
    pub version: u64,
    /// When it expires, in logical time; `None` is never.
    pub due_ms: Option<u64>,
}

/// Some keys, in name order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPage {
    /// The keys of this page. There may be fewer than requested, or none, before the last page,
    /// because names that are only remembered are skipped.
    pub keys: Vec<(LockName, KeyKind)>,
    /// Where the next page starts; `None` if this is the last.
    pub next_after: Option<LockName>,
}

impl Keys {
    /// The content of a name.
    pub(crate) fn key(&self, name: &LockName, lines: &impl StoreAccess) -> Key {
        if let Some(holder) = lines.holder(name) {
            return Key::Text(TextKey {
                value: text_of(&holder),
                token: holder.token(),
                due_ms: holder.due_ms(),
                door: holder.door(),
                waiting: holder.line().waiting() as usize,
                writable: holder.is_known_by_label(),
            });
        }
        self.stored(name).map_or(Key::Absent, |stored| {
            Key::Object(ObjectKey {
                object: stored.object.clone(),
                version: stored.version,
                due_ms: stored.due(),
            })
        })
    }

    /// The stamp of a key, for a transaction that has read it.
    pub(crate) fn stamp(&self, name: &LockName, lines: &impl StoreAccess) -> Stamp {
        if let Some(holder) = lines.holder(name) {
            return Stamp::Text {
                token: holder.token(),
                holders: holder.line().holding(),
                waiting: holder.line().waiting(),
                last: holder.last_in_line(),
                due_ms: holder.due_ms(),
                exclusive: holder.is_exclusive(),
                relabelled: holder.relabelled(),
            };
        }
        self.stored(name).map_or(Stamp::Absent, |stored| Stamp::Object { version: stored.version })
    }

    /// Up to `limit` names that start with `prefix` and come after `after`, less those that are not
    /// keys now.
    pub(crate) fn keys(
        &self,
        prefix: &[u8],
        after: Option<&LockName>,
        limit: usize,
        lines: &impl StoreAccess,
    ) -> KeyPage {
        let one_more = limit.saturating_add(1);
        let mut names = lines.names(prefix, after, one_more);
        names.extend(self.order.page(prefix, after, one_more));
        names.sort_unstable();
        // The name of an object may also be remembered as a lock.
        names.dedup();
        let more = names.len() > limit;
        names.truncate(limit);
        let next_after = names.last().filter(|_| more).cloned();
        let kind = |name: LockName| self.kind_of(&name, lines).map(|kind| (name, kind));
        KeyPage { keys: names.into_iter().filter_map(kind).collect(), next_after }
    }

    /// How many keys there are.
    pub(crate) fn keys_len(&self, lines: &impl StoreAccess) -> usize {
        lines.held_locks().saturating_add(self.data.objects.len())
    }

    /// Rises whenever a key is added, removed or changed.
    ///
    /// Every grant and every end of a holder is an event in the history, so the event number is
    /// half of it.
    pub(crate) fn keys_changed(&self, lines: &impl StoreAccess) -> u64 {
        lines.events_numbered().saturating_add(self.data.changes)
    }

    fn kind_of(&self, name: &LockName, lines: &impl StoreAccess) -> Option<KeyKind> {
        match lines.holder(name) {
            Some(_) => Some(KeyKind::Text),
            None => self.stored(name).map(|stored| stored.object.kind()),
        }
    }
}

/// A holder's label as a text.
pub(super) fn text_of(holder: &HolderView<'_>) -> Label {
    holder.label().unwrap_or_else(Label::empty)
}
