//! Who is notified of what. Each node keeps the watches of its own connections; they are not
//! replicated, because every node sees every effect.

use crate::effect::Effect;
use crate::text::LockName;
use std::collections::{BTreeMap, BTreeSet};

/// The most watches of one node. At about 100 bytes each, a full set stays near 10 MB.
pub const WATCHES_MAX: usize = 100_000;

/// What a watcher wants to be notified of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// One lock.
    Name(LockName),
    /// All locks whose names begin with these bytes; `None` for all locks.
    Prefix(Option<LockName>),
}

/// The watches of one node. `W` identifies the watcher.
#[derive(Debug)]
pub struct Watches<W> {
    by_name: BTreeMap<LockName, BTreeSet<W>>,
    by_prefix: BTreeMap<Vec<u8>, BTreeSet<W>>,
    /// How many prefixes of each length there are: only those lengths are looked up.
    prefix_lens: BTreeMap<usize, usize>,
    len: usize,
}

impl<W> Default for Watches<W> {
    fn default() -> Self {
        let (by_name, by_prefix, prefix_lens) = Default::default();
        Self { by_name, by_prefix, prefix_lens, len: 0 }
    }
}

impl<W: Ord + Clone> Watches<W> {
    /// Adds a watch; returns false if the node has too many.
    pub fn add(&mut self, watcher: W, scope: &Scope) -> bool {
        if self.len >= WATCHES_MAX {
            return false;
        }
        let added = match scope {
            Scope::Name(name) => self.by_name.entry(name.clone()).or_default().insert(watcher),
            Scope::Prefix(prefix) => {
                let prefix = prefix_bytes(prefix);
                if !self.by_prefix.contains_key(prefix) {
                    let lens = self.prefix_lens.entry(prefix.len()).or_default();
                    *lens = lens.saturating_add(1);
                }
                self.by_prefix.entry(prefix.to_vec()).or_default().insert(watcher)
            }
        };
        self.len = self.len.saturating_add(usize::from(added));
        true
    }

    /// Removes a watch.
    pub fn remove(&mut self, watcher: &W, scope: &Scope) {
        let removed = match scope {
            Scope::Name(name) => {
                let removed = self.by_name.get_mut(name).is_some_and(|set| set.remove(watcher));
                if self.by_name.get(name).is_some_and(BTreeSet::is_empty) {
                    self.by_name.remove(name);
                }
                removed
            }
            Scope::Prefix(prefix) => self.remove_prefix(watcher, prefix_bytes(prefix)),
        };
        self.len = self.len.saturating_sub(usize::from(removed));
    }

    fn remove_prefix(&mut self, watcher: &W, prefix: &[u8]) -> bool {
        let removed = self.by_prefix.get_mut(prefix).is_some_and(|set| set.remove(watcher));
        if self.by_prefix.get(prefix).is_some_and(BTreeSet::is_empty) {
            self.by_prefix.remove(prefix);
            if let Some(lens) = self.prefix_lens.get_mut(&prefix.len()) {
                *lens = lens.saturating_sub(1);
                if *lens == 0 {
                    self.prefix_lens.remove(&prefix.len());
                }
            }
        }
        removed
    }

    /// The watchers to notify of an effect, each once.
    pub fn watchers_of(&self, effect: &Effect) -> BTreeSet<W> {
        let mut watchers = BTreeSet::new();
        if self.len == 0 {
            return watchers;
        }
        for name in effect.names() {
            watchers.extend(self.by_name.get(name).into_iter().flatten().cloned());
            for len in self.prefix_lens.keys() {
                let Some(prefix) = name.as_bytes().get(..*len) else { break };
                watchers.extend(self.by_prefix.get(prefix).into_iter().flatten().cloned());
            }
        }
        watchers
    }
}

fn prefix_bytes(prefix: &Option<LockName>) -> &[u8] {
    prefix.as_ref().map_or(&[], LockName::as_bytes)
}
