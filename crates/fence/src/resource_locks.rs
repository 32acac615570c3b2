//! Read-write locks by resource name, inside this process: one caller with an exclusive token, or
//! several with shared ones.

use crate::{Highest, Mode, Refused, Token};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, watch};

/// The locks that are held or waited for. Others use no memory.
#[derive(Debug, Default)]
pub(crate) struct ResourceLocks {
    entries: Mutex<HashMap<String, Entry>>,
}

#[derive(Debug)]
struct Entry {
    lock: Arc<RwLock<()>>,
    /// The highest tokens that were shown since the entry was created.
    highest: watch::Sender<Highest>,
    /// How many callers hold the lock or wait for it, by token number.
    callers: BTreeMap<u64, usize>,
}

/// A caller that holds a resource's lock, is waiting for it or is about to. Leaves when dropped.
#[derive(Debug)]
pub(crate) struct Caller {
    locks: Arc<ResourceLocks>,
    resource: String,
    token: Token,
    lock: Arc<RwLock<()>>,
    highest: watch::Sender<Highest>,
}

/// A held lock, released on drop.
#[derive(Debug)]
#[allow(dead_code, reason = "what counts is that they are dropped")]
pub(crate) enum Held {
    Exclusive(OwnedRwLockWriteGuard<()>),
    Shared(OwnedRwLockReadGuard<()>),
}

impl ResourceLocks {
    /// Joins the callers of a resource. `None` if there are already `callers_max` whose tokens are
    /// not lower: old callers, however many, never keep out a later holder.
    pub(crate) fn join(
        self: &Arc<Self>,
        resource: &str,
        token: Token,
        callers_max: usize,
    ) -> Option<Caller> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.entry(resource.to_owned()).or_insert_with(|| Entry {
            lock: Arc::default(),
            highest: watch::Sender::default(),
            callers: BTreeMap::new(),
        });
        let not_lower: usize = entry.callers.range(token.number()..).map(|(_, count)| count).sum();
        if not_lower >= callers_max {
            return None;
        }
        *entry.callers.entry(token.number()).or_default() += 1;
        Some(Caller {
            locks: self.clone(),
            resource: resource.to_owned(),
            token,
            lock: entry.lock.clone(),
            highest: entry.highest.clone(),
        })
    }

    #[cfg(test)]
    fn resources(&self) -> usize {
        self.entries.lock().unwrap().len()
    }
}

impl Caller {
    /// The lock, if nobody is in the way.
    pub(crate) fn try_lock(&self, mode: Mode) -> Option<Held> {
        let lock = self.lock.clone();
        match mode {
            Mode::Exclusive => lock.try_write_owned().ok().map(Held::Exclusive),
            Mode::Shared => lock.try_read_owned().ok().map(Held::Shared),
        }
    }

    /// Waits for the lock, in the order of the calls.
    pub(crate) async fn lock(&self, mode: Mode) -> Held {
        let lock = self.lock.clone();
        match mode {
            Mode::Exclusive => Held::Exclusive(lock.write_owned().await),
            Mode::Shared => Held::Shared(lock.read_owned().await),
        }
    }

    /// Tells the resource's other callers which tokens the fence has seen.
    pub(crate) fn raised(&self, seen: Highest) {
        self.highest.send_if_modified(|highest| {
            let higher = Highest {
                exclusive: highest.exclusive.max(seen.exclusive),
                any: highest.any.max(seen.any),
            };
            let modified = *highest != higher;
            *highest = higher;
            modified
        });
    }

    /// Whether this caller's token, or one that supersedes at least as many, has already been
    /// shown.
    pub(crate) fn is_shown(&self) -> bool {
        let highest = *self.highest.borrow();
        highest.admit("", self.token).is_ok_and(|after| after == highest)
    }

    /// Returns when a later holder has shown its token. Cancel-safe.
    pub(crate) fn superseded(&self) -> impl Future<Output = Refused> + Send + 'static {
        let (mut highest, resource, shown) =
            (self.highest.subscribe(), self.resource.clone(), self.token);
        async move {
            let is_later =
                |highest: &Highest| highest.lowest_passing(shown.mode()) > shown.number();
            let seen = highest.wait_for(is_later).await.map(|seen| *seen);
            match seen {
                Ok(highest) => Refused { resource, shown, highest },
                // All callers have left.
                Err(_) => std::future::pending().await,
            }
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut entries = self.locks.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = entries.get_mut(&self.resource) else { return };
        if let Some(count) = entry.callers.get_mut(&self.token.number()) {
            *count -= 1;
            if *count == 0 {
                entry.callers.remove(&self.token.number());
            }
        }
        if entry.callers.is_empty() {
            entries.remove(&self.resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn idle_resources_take_no_memory() {
        let locks = Arc::new(ResourceLocks::default());
        let token = Token::exclusive(34).unwrap();
        let join = || locks.join("a", token, 2);
        let first = join().unwrap();
        let held = first.lock(Mode::Exclusive).await;
        let second = join().unwrap();
        assert!(second.try_lock(Mode::Shared).is_none());
        assert!(join().is_none(), "two are there");
        let later = locks.join("a", Token::exclusive(35).unwrap(), 2);
        assert!(later.is_some(), "they don't keep out a later one");
        drop((second, later));
        assert_eq!(locks.resources(), 1);
        drop((held, first));
        assert_eq!(locks.resources(), 0);
        let (one, two) = (join().unwrap(), join().unwrap());
        let shared = (one.lock(Mode::Shared).await, two.lock(Mode::Shared).await);
        drop((shared, one, two));
        assert_eq!(locks.resources(), 0);
    }

    #[tokio::test]
    async fn caller_learns_of_a_later_holder() {
        let locks = Arc::new(ResourceLocks::default());
        let join = |number| locks.join("a", Token::exclusive(number).unwrap(), 2).unwrap();
        let (old, new) = (join(34), join(35));
        let superseded = old.superseded();
        assert!(!old.is_shown());
        new.raised(Highest { exclusive: 34, any: 34 });
        assert!(old.is_shown() && !new.is_shown());
        let mut superseded = Box::pin(superseded);
        assert!(tokio::time::timeout(std::time::Duration::ZERO, &mut superseded).await.is_err());
        new.raised(Highest { exclusive: 35, any: 35 });
        assert_eq!(superseded.await.later(), 35);
    }
}
