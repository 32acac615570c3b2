//! Keys, as the core must show them.

use super::records::Kept;
use super::{Model, Ticket};
use holdfast_core::{
    Key, KeyKind, Label, Lease, LockName, Mode, Object, ObjectKey, Stamp, TextKey,
};

impl Model {
    pub(super) fn kept(&self, name: &LockName) -> Option<&Kept> {
        self.objects.iter().find(|kept| kept.name == *name)
    }

    pub(super) fn text_of(&self, ticket: &Ticket) -> Label {
        self.label_of(ticket).unwrap_or_else(|| Label::parse("").expect("short"))
    }

    pub(crate) fn key(&self, name: &LockName) -> Key {
        if let Some(holder) = self.holders(name).first() {
            return Key::Text(TextKey {
                value: self.text_of(holder),
                token: holder.token,
                due_ms: holder.due_ms,
                door: holder.door,
                waiting: self.waiters(name).len(),
                writable: self.own_text(holder.door, name).is_some(),
            });
        }
        self.kept(name).cloned().map_or(Key::Absent, |kept| {
            let Kept { object, version, due_ms, .. } = kept;
            Key::Object(ObjectKey { object, version, due_ms })
        })
    }

    pub(crate) fn stamp(&self, name: &LockName) -> Stamp {
        let (holders, waiters, line) = (self.holders(name), self.waiters(name), self.line(name));
        if let (Some(first), Some(last)) = (holders.first(), line.last()) {
            let unconfirmed = matches!(first.lease, Lease::Unconfirmed { .. });
            return Stamp::Text {
                token: first.token,
                holders: holders.len() as u32,
                waiting: waiters.len() as u32,
                last: last.token,
                due_ms: first.due_ms,
                exclusive: first.mode == Mode::Exclusive && !unconfirmed,
                relabelled: first.relabelled,
            };
        }
        self.kept(name).map_or(Stamp::Absent, |kept| Stamp::Object { version: kept.version })
    }

    /// Every key with its kind, in byte order.
    pub(crate) fn keys(&self) -> Vec<(LockName, KeyKind)> {
        let held = self.tickets.iter().filter(|ticket| ticket.held);
        let held = held.flat_map(|ticket| ticket.names.iter());
        let mut keys: Vec<(LockName, KeyKind)> =
            held.map(|name| (name.clone(), KeyKind::Text)).collect();
        keys.extend(self.objects.iter().map(|kept| (kept.name.clone(), kind_of(&kept.object))));
        keys.sort_by(|(one, _), (other, _)| one.cmp(other));
        keys.dedup();
        keys
    }

    /// Every change of a holder is an event, any other is a change of an object.
    pub(crate) fn keys_changed(&self) -> u64 {
        self.events.len() as u64 + self.changes
    }
}

pub(super) fn kind_of(object: &Object) -> KeyKind {
    match object {
        Object::Hash(_) => KeyKind::Hash,
        Object::List(_) => KeyKind::List,
    }
}

/// How many fields or items an object has, and the bytes of all of them.
pub(super) fn size_of(object: &Object) -> (usize, usize) {
    let (mut count, mut bytes) = (0, 0);
    match object {
        Object::Hash(fields) => {
            for (field, value) in fields {
                count += 1;
                bytes += field.as_bytes().len() + value.as_bytes().len();
            }
        }
        Object::List(items) => {
            for item in items {
                count += 1;
                bytes += item.as_bytes().len();
            }
        }
    }
    (count, bytes)
}
