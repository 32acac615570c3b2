//! Keys as a door like Redis's sees them. Questions only: they change nothing.

use super::State;
use super::records::{Lock, Ticket};
use crate::command::{Door, Lease, Mode};
use crate::ids::Token;
use crate::store::Slot;
use crate::text::{Label, LockName};
use crate::transaction::{KeyKind, Object, Stamp};
use std::sync::Arc;

/// What stands under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// Nothing: nobody holds it, and it is no object. Somebody may still wait for the end of a
    /// lock-delay there, and then it can't be written.
    Absent,
    /// A held lock, through whatever door.
    Text(TextKey),
    /// A hash or a list.
    Object(ObjectKey),
}

/// A held lock as a text: what its first holder calls itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextKey {
    /// The label of the first holder; empty if it has none.
    pub value: Label,
    /// Its token.
    pub token: Token,
    /// When its lease ends, in logical time; none if it has no deadline.
    pub due_ms: Option<u64>,
    /// Where it came in.
    pub door: Door,
    /// How many wait for it.
    pub waiting: usize,
    /// Whether a transaction through the same door may write it. Not if more than its label is
    /// needed: it has a secret, lives by a session, is not exclusive or has several names.
    pub writable: bool,
}

/// An object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectKey {
    /// All that is in it.
    pub object: Arc<Object>,
    /// Drawn anew by every write.
    pub version: u64,
    /// When it ends, in logical time.
    pub due_ms: Option<u64>,
}

/// Some keys, in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPage {
    /// The keys of this page. There may be fewer than asked for, or none, before the last page:
    /// names that are only remembered are passed over.
    pub keys: Vec<(LockName, KeyKind)>,
    /// Where the next page begins; none if this is the last.
    pub next_after: Option<LockName>,
}

impl State {
    /// What stands under a name.
    pub fn key(&self, name: &LockName) -> Key {
        if let Some((_, lock, ticket)) = self.first_holder(name) {
            return Key::Text(TextKey {
                value: self.text_of(ticket),
                token: ticket.number,
                due_ms: ticket.due(),
                door: ticket.door,
                waiting: lock.waiters() as usize,
                writable: is_a_text(lock, ticket),
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

    /// How a key stands, for a transaction that has read it.
    pub fn stamp(&self, name: &LockName) -> Stamp {
        if let Some((slot, lock, ticket)) = self.first_holder(name) {
            let last = self.index.sets.lines.iter(slot, lock).next_back();
            return Stamp::Text {
                token: ticket.number,
                holders: lock.holders,
                waiting: lock.waiters(),
                last: last.unwrap_or(ticket.number),
                due_ms: ticket.due(),
                exclusive: lock.exclusive && !ticket.is_unconfirmed(),
                relabelled: ticket.relabelled(),
            };
        }
        self.stored(name).map_or(Stamp::Absent, |stored| Stamp::Object { version: stored.version })
    }

    /// Up to `limit` names that begin with `prefix` and come after `after`, those of them that are
    /// keys now.
    pub fn keys(&self, prefix: &[u8], after: Option<&LockName>, limit: usize) -> KeyPage {
        let one_more = limit.saturating_add(1);
        let mut names = self.index.order.page(prefix, after, one_more);
        names.extend(self.index.object_order.page(prefix, after, one_more));
        names.sort_unstable();
        // A lock may be remembered under the name of an object.
        names.dedup();
        let more = names.len() > limit;
        names.truncate(limit);
        let next_after = names.last().filter(|_| more).cloned();
        let kind = |name: LockName| self.kind_of(&name).map(|kind| (name, kind));
        KeyPage { keys: names.into_iter().filter_map(kind).collect(), next_after }
    }

    /// How many keys there are.
    pub fn keys_len(&self) -> usize {
        self.index.sets.held_locks.saturating_add(self.data.objects.len())
    }

    /// A number that is higher whenever a key has come, gone or got another content. So a
    /// transaction that has listed or counted keys can tell that it would find the same ones.
    ///
    /// Every holder's coming and going is an event of the history, so its numbering is half of it.
    pub fn keys_changed(&self) -> u64 {
        self.data.history.next_number.saturating_add(self.data.changes)
    }

    fn kind_of(&self, name: &LockName) -> Option<KeyKind> {
        match self.first_holder(name) {
            Some(_) => Some(KeyKind::Text),
            None => self.stored(name).map(|stored| stored.object.kind()),
        }
    }

    /// The holder that a key shows.
    pub(super) fn first_holder(&self, name: &LockName) -> Option<(Slot, &Lock, &Ticket)> {
        let slot = self.lock_slot(name)?;
        let lock = self.data.locks.get(slot).filter(|lock| lock.holders > 0)?;
        Some((slot, lock, self.ticket(lock.head()?)?))
    }

    /// A ticket's label as a text.
    pub(super) fn text_of(&self, ticket: &Ticket) -> Label {
        self.label_of(ticket).unwrap_or_else(Label::empty)
    }
}

/// Whether a lock is no more than a text: one exclusive holder, for whom its label speaks.
pub(super) fn is_a_text(lock: &Lock, ticket: &Ticket) -> bool {
    lock.holders == 1
        && ticket.door != Door::Native
        && ticket.secret.is_none()
        && ticket.mode == Mode::Exclusive
        && ticket.lease != Lease::Session
        && !ticket.is_unconfirmed()
        && !ticket.has_several_locks()
}
