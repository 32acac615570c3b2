//! A map with constant-time lookup, used for every reply and every effect.
//!
//! Hash order can't leak: it is never iterated, and `keys` are sorted.

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
        // Cheaper than hashing, and it is usually empty.
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
