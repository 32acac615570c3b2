//! Hashes and lists: objects under a name that is not a lock.
//!
//! A name is a lock or an object, never both: the name of an object can't be acquired, and no
//! object is written while there are tickets in line.

use super::Keys;
use crate::containers::{Keyed, Slot};
use crate::effect::Effect;
use crate::ids::NEVER_MS;
use crate::lines::StoreAccess;
use crate::refusal::Refusal;
use crate::text::LockName;
use crate::transaction::Object;
use crate::weight::Weight;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What an element of an object takes, besides its bytes.
const ELEMENT_BYTES: usize = 64;

/// One object. Snapshots and readers share its content, so a write replaces it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredObject {
    pub(crate) name: LockName,
    pub(crate) object: Arc<Object>,
    pub(crate) version: u64,
    pub(crate) due_ms: u64,
}

impl StoredObject {
    pub(crate) fn due(&self) -> Option<u64> {
        (self.due_ms != NEVER_MS).then_some(self.due_ms)
    }

    pub(crate) fn weight(&self) -> Weight {
        weight_of(&self.name, &self.object)
    }
}

/// The weight of an object under a name.
pub(super) fn weight_of(name: &LockName, object: &Object) -> Weight {
    let texts = name.as_bytes().len().saturating_add(object.bytes());
    Weight { texts, rest: object.elements().saturating_mul(ELEMENT_BYTES) }
}

impl Keyed for StoredObject {
    type Key = LockName;
    fn key(&self) -> &LockName {
        &self.name
    }
}

impl Keys {
    fn object_slot(&self, name: &LockName) -> Option<Slot> {
        if self.data.objects.len() == 0 {
            return None;
        }
        self.objects.get(&self.data.objects, name)
    }

    pub(super) fn stored(&self, name: &LockName) -> Option<&StoredObject> {
        self.data.objects.get(self.object_slot(name)?)
    }

    /// Refuses the name of an object: it can't also be a lock.
    pub(crate) fn check_no_object(&self, name: &LockName) -> Result<(), Refusal> {
        match self.stored(name) {
            Some(stored) => Err(Refusal::InUse { name: name.clone(), kind: stored.object.kind() }),
            None => Ok(()),
        }
    }

    /// Draws the number of a change to an object or a label. Never reused, so that a stamp
    /// distinguishes an object from an earlier one under the same name.
    pub(super) fn next_change(&mut self) -> u64 {
        self.data.changes = self.data.changes.saturating_add(1);
        self.data.changes
    }

    /// Writes an object, and replaces one that was there.
    pub(super) fn put_object(
        &mut self,
        name: LockName,
        object: Arc<Object>,
        due_ms: u64,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) {
        self.take_out_object(&name, lines);
        let version = self.next_change();
        let now = Some(object.kind());
        let stored = StoredObject { name: name.clone(), object, version, due_ms };
        lines.weigh(Weight::NONE, stored.weight());
        self.due.extend(stored.due().map(|due_ms| (due_ms, name.clone())));
        let slot = self.data.objects.insert(stored);
        self.objects.insert(&self.data.objects, slot);
        self.order.insert(slot, &name);
        effects.push(Effect::ObjectChanged { name, now, version });
    }

    /// Removes an object, if there is one.
    pub(super) fn remove_object(
        &mut self,
        name: &LockName,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) {
        if self.take_out_object(name, lines) {
            let (name, version) = (name.clone(), self.next_change());
            effects.push(Effect::ObjectChanged { name, now: None, version });
        }
    }

    /// When the next object expires, in logical time.
    pub(crate) fn first_due_ms(&self) -> Option<u64> {
        self.due.first().map(|(due_ms, _)| *due_ms)
    }

    /// Removes the object that expires first.
    pub(crate) fn end_first_due(
        &mut self,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) {
        if let Some((_, name)) = self.due.pop_first() {
            self.remove_object(&name, lines, effects);
        }
    }

    fn take_out_object(&mut self, name: &LockName, lines: &mut impl StoreAccess) -> bool {
        let Some(slot) = self.object_slot(name) else { return false };
        self.objects.remove(&self.data.objects, slot);
        self.order.remove(slot, name);
        let Some(stored) = self.data.objects.remove(slot) else { return false };
        lines.weigh(stored.weight(), Weight::NONE);
        if let Some(due_ms) = stored.due() {
            self.due.remove(&(due_ms, stored.name));
        }
        true
    }
}
