//! Finds a record's slot by its key in constant time.
//!
//! It is a hash table that can't be iterated, so its order can't leak into what the core does.
//! The keys stay in the records: the index holds only slots.

use super::{Slab, Slot};
use hashbrown::HashTable;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

/// Tables that grow one at a time: growing one of a million slots would stall the loop for tens
/// of milliseconds, growing one of 256 takes microseconds.
const TABLES: usize = 256;

/// A record that knows its own key.
pub(crate) trait Keyed: Clone {
    type Key: Hash + Eq + ?Sized;
    fn key(&self) -> &Self::Key;
}

/// Slots by key. Replicas may hash differently: the hash key is drawn per node, so that nobody
/// outside can choose names that collide.
#[derive(Debug)]
pub(crate) struct Index<T> {
    tables: Vec<HashTable<Slot>>,
    hasher: foldhash::fast::FixedState,
    of: PhantomData<T>,
}

impl<T: Keyed> Index<T> {
    pub(crate) fn new(hash_key: u64) -> Self {
        let tables = (0..TABLES).map(|_| HashTable::new()).collect();
        Self { tables, hasher: foldhash::fast::FixedState::with_seed(hash_key), of: PhantomData }
    }

    /// An index with room for this many records before it grows.
    pub(crate) fn with_capacity(records: usize, hash_key: u64) -> Self {
        let tables = (0..TABLES).map(|_| HashTable::with_capacity(records / TABLES)).collect();
        Self { tables, ..Self::new(hash_key) }
    }

    /// The index of all records in a slab.
    pub(crate) fn of(slab: &Slab<T>, hash_key: u64) -> Self {
        let mut index = Self::with_capacity(slab.len(), hash_key);
        for (slot, _) in slab.iter() {
            index.insert(slab, slot);
        }
        index
    }

    pub(crate) fn len(&self) -> usize {
        self.tables.iter().map(HashTable::len).sum()
    }

    pub(crate) fn get(&self, slab: &Slab<T>, key: &T::Key) -> Option<Slot> {
        let hash = self.hasher.hash_one(key);
        let is_it = |slot: &Slot| slab.get(*slot).is_some_and(|record| record.key() == key);
        self.tables.get(table_of(hash))?.find(hash, is_it).copied()
    }

    /// Adds a record that is in the slab and not yet in the index.
    pub(crate) fn insert(&mut self, slab: &Slab<T>, slot: Slot) {
        let hasher = &self.hasher;
        let hash_of =
            |slot: &Slot| slab.get(*slot).map_or(0, |record| hasher.hash_one(record.key()));
        let hash = hash_of(&slot);
        if let Some(table) = self.tables.get_mut(table_of(hash)) {
            table.insert_unique(hash, slot, hash_of);
        }
    }

    /// Removes a record that is still in the slab.
    pub(crate) fn remove(&mut self, slab: &Slab<T>, slot: Slot) {
        let Some(record) = slab.get(slot) else { return };
        let hash = self.hasher.hash_one(record.key());
        let Some(table) = self.tables.get_mut(table_of(hash)) else { return };
        if let Ok(entry) = table.find_entry(hash, |other| *other == slot) {
            entry.remove();
        }
    }
}

/// Which table a hash belongs to, by bits that the table itself does not use first.
fn table_of(hash: u64) -> usize {
    (hash >> 32) as usize % TABLES
}
