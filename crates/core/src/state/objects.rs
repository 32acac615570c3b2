//! Hashes and lists: what is kept under a name that is not a lock.
//!
//! A name is a lock or an object, never both: nobody can acquire the name of an object, and no
//! object is put where somebody stands in line.

use super::State;
use super::records::{ELEMENT_BYTES, Weight};
use crate::effect::Effect;
use crate::ids::NEVER_MS;
use crate::refusal::Refusal;
use crate::store::{Keyed, Slot};
use crate::text::LockName;
use crate::transaction::Object;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One object. Its content is shared with snapshots and readers: a write brings a new one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stored {
    pub(crate) name: LockName,
    pub(crate) object: Arc<Object>,
    pub(crate) version: u64,
    pub(crate) due_ms: u64,
}

impl Stored {
    pub(crate) fn due(&self) -> Option<u64> {
        (self.due_ms != NEVER_MS).then_some(self.due_ms)
    }

    pub(crate) fn weight(&self) -> Weight {
        weight_of(&self.name, &self.object)
    }
}

/// What an object weighs under a name.
pub(super) fn weight_of(name: &LockName, object: &Object) -> Weight {
    let texts = name.as_bytes().len().saturating_add(object.bytes());
    Weight { texts, rest: object.elements().saturating_mul(ELEMENT_BYTES) }
}

impl Keyed for Stored {
    type Key = LockName;
    fn key(&self) -> &LockName {
        &self.name
    }
}

impl State {
    pub(super) fn object_slot(&self, name: &LockName) -> Option<Slot> {
        if self.data.objects.len() == 0 {
            return None;
        }
        self.index.objects.get(&self.data.objects, name)
    }

    pub(super) fn stored(&self, name: &LockName) -> Option<&Stored> {
        self.data.objects.get(self.object_slot(name)?)
    }

    /// A name that is an object can't be a lock as well.
    pub(super) fn check_no_object(&self, name: &LockName) -> Result<(), Refusal> {
        match self.stored(name) {
            Some(stored) => Err(Refusal::InUse { name: name.clone(), kind: stored.object.kind() }),
            None => Ok(()),
        }
    }

    /// The number of a change to an object or a label. Never the same twice, so that a stamp tells
    /// an object from one that was there before under the same name.
    pub(super) fn next_change(&mut self) -> u64 {
        self.data.changes = self.data.changes.saturating_add(1);
        self.data.changes
    }

    /// Writes an object in place of whatever object was there.
    pub(super) fn put_object(
        &mut self,
        name: LockName,
        object: Arc<Object>,
        due_ms: u64,
        effects: &mut Vec<Effect>,
    ) {
        self.take_out_object(&name);
        let version = self.next_change();
        let now = Some(object.kind());
        let stored = Stored { name: name.clone(), object, version, due_ms };
        self.weigh(Weight::NONE, stored.weight());
        self.index.sets.objects_due.extend(stored.due().map(|due_ms| (due_ms, name.clone())));
        let slot = self.data.objects.insert(stored);
        self.index.objects.insert(&self.data.objects, slot);
        self.index.object_order.insert(slot, &name);
        effects.push(Effect::ObjectChanged { name, now, version });
    }

    /// Removes an object, if there is one.
    pub(super) fn remove_object(&mut self, name: &LockName, effects: &mut Vec<Effect>) {
        if self.take_out_object(name) {
            let (name, version) = (name.clone(), self.next_change());
            effects.push(Effect::ObjectChanged { name, now: None, version });
        }
    }

    fn take_out_object(&mut self, name: &LockName) -> bool {
        let Some(slot) = self.object_slot(name) else { return false };
        self.index.objects.remove(&self.data.objects, slot);
        self.index.object_order.remove(slot, name);
        let Some(stored) = self.data.objects.remove(slot) else { return false };
        self.weigh(stored.weight(), Weight::NONE);
        if let Some(due_ms) = stored.due() {
            self.index.sets.objects_due.remove(&(due_ms, stored.name));
        }
        true
    }
}
