//! Finds things by their key in constant time, on the way of every answer and every effect.
//!
//! Hash order can't leak out of it: it is never iterated, and what is taken out of it at once comes in
//! the order of the keys.

use foldhash::fast::FixedState;
use std::hash::Hash;

#[derive(Debug)]
pub(crate) struct Index<K, V> {
    #[expect(clippy::disallowed_types, reason = "it can't be iterated")]
    map: std::collections::HashMap<K, V, FixedState>,
}

impl<K, V> Default for Index<K, V> {
    fn default() -> Self {
        Self { map: Default::default() }
    }
}

impl<K: Hash + Ord + Clone, V> Index<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        // Hashing costs more than this look, and mostly there is nothing.
        if self.map.is_empty() { None } else { self.map.get(key) }
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.map.get_mut(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.map.insert(key, value)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        if self.map.is_empty() { None } else { self.map.remove(key) }
    }

    pub(crate) fn entry(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.map.entry(key).or_default()
    }

    /// All keys, in order.
    pub(crate) fn keys(&self) -> Vec<K> {
        let mut keys: Vec<K> = self.map.keys().cloned().collect();
        keys.sort_unstable();
        keys
    }
}
