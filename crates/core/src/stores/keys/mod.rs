//! Keys: what a door like the Redis one reads and writes.
//!
//! A key is a held lock, shown as a text with the label of its first holder, or an object, or
//! absent. The locks belong to the lines; this store keeps the objects.
//!
//! - `transact`: writes several keys at once; `steps`: what each write amounts to
//! - `objects`: hashes and lists
//! - `questions`: keys and their stamps as a door reads them

mod invariants;
mod objects;
mod questions;
mod steps;
mod transact;

pub(crate) use objects::StoredObject;
pub use questions::{Key, KeyPage, ObjectKey, TextKey};

use crate::containers::{Index, NameOrder, Slab};
use crate::lines::StoreAccess;
use crate::text::LockName;
use crate::weight::Weight;
use std::collections::BTreeSet;

/// All objects.
#[derive(Debug)]
pub(crate) struct Keys {
    data: Data,
    /// An index of the data; rebuilt from it.
    objects: Index<StoredObject>,
    order: NameOrder,
    /// When objects expire.
    due: BTreeSet<(u64, LockName)>,
}

/// What is replicated. Cloning it is cheap, and a clone is a snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Data {
    /// The last number drawn for a change to an object or to a label.
    pub(crate) changes: u64,
    pub(crate) objects: Slab<StoredObject>,
}

impl Data {
    fn weigh(&self) -> Weight {
        let objects = self.objects.iter().map(|(_, stored)| stored.weight());
        objects.fold(Weight::NONE, Weight::and)
    }

    fn due(&self) -> BTreeSet<(u64, LockName)> {
        let objects = self.objects.iter();
        objects.filter_map(|(_, stored)| Some((stored.due()?, stored.name.clone()))).collect()
    }
}

impl Keys {
    pub(crate) fn new(hash_key: u64) -> Self {
        Self::of(Data::default(), hash_key)
    }

    /// Loads the objects of a snapshot; `lines` are those of the same snapshot.
    pub(crate) fn load(data: Data, hash_key: u64, lines: &mut impl StoreAccess) -> Self {
        lines.weigh(Weight::NONE, data.weigh());
        Self::of(data, hash_key)
    }

    fn of(data: Data, hash_key: u64) -> Self {
        let objects = Index::of(&data.objects, hash_key);
        let order = NameOrder::of(data.objects.iter().map(|(slot, o)| (slot, &o.name)));
        let due = data.due();
        Self { data, objects, order, due }
    }

    /// What a snapshot contains.
    pub(crate) fn data(&self) -> &Data {
        &self.data
    }

    /// The weight of everything here, counted again.
    pub(crate) fn weigh_all(&self) -> Weight {
        self.data.weigh()
    }

    /// How many objects there are.
    pub(crate) fn objects_len(&self) -> usize {
        self.data.objects.len()
    }
}
