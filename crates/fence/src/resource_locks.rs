//! Read-write locks by resource name, inside this process: one caller with an exclusive token, or
//! several with shared ones.

use crate::{Highest, Mode, Token};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, watch};

/// The locks that are held or waited for. Others take no memory.
#[derive(Debug, Default)]
pub(crate) struct ResourceLocks {
    entries: Mutex<HashMap<String, Entry>>,
}

#[derive(Debug)]
struct Entry {
    lock: Arc<RwLock<()>>,
    /// The highest tokens that were shown while the entry existed.
    highest: watch::Sender<Highest>,
    /// Callers that hold the lock or wait for it.
    callers: usize,
}

/// A caller that holds a resource's lock, waits for it or is about to. Leaves when dropped.
#[derive(Debug)]
pub(crate) struct Caller {
    locks: Arc<ResourceLocks>,
    resource: String,
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
    /// Joins the callers of a resource. `None` if `callers_max` are there already.
    pub(crate) fn join(self: &Arc<Self>, resource: &str, callers_max: usize) -> Option<Caller> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.entry(resource.to_owned()).or_insert_with(|| Entry {
            lock: Arc::default(),
            highest: watch::Sender::default(),
            callers: 0,
        });
        if entry.callers >= callers_max {
            return None;
        }
        entry.callers += 1;
        Some(Caller {
            locks: self.clone(),
            resource: resource.to_owned(),
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

    /// Returns when a later holder has shown its token. Cancel-safe.
    pub(crate) fn superseded(&self, token: Token) -> impl Future<Output = ()> + Send + 'static {
        let mut highest = self.highest.subscribe();
        async move {
            let is_later =
                |highest: &Highest| highest.lowest_passing(token.mode()) > token.number();
            if highest.wait_for(is_later).await.is_err() {
                // Everybody has left.
                std::future::pending().await
            }
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut entries = self.locks.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get_mut(&self.resource) {
            entry.callers -= 1;
            if entry.callers == 0 {
                entries.remove(&self.resource);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_resource_without_callers_takes_no_memory() {
        let locks = Arc::new(ResourceLocks::default());
        let first = locks.join("a", 2).unwrap();
        let held = first.lock(Mode::Exclusive).await;
        let second = locks.join("a", 2).unwrap();
        assert!(second.try_lock(Mode::Shared).is_none());
        assert!(locks.join("a", 2).is_none(), "two are there");
        drop(second);
        assert_eq!(locks.resources(), 1);
        drop((held, first));
        assert_eq!(locks.resources(), 0);
        let (one, two) = (locks.join("a", 2).unwrap(), locks.join("a", 2).unwrap());
        let shared = (one.lock(Mode::Shared).await, two.lock(Mode::Shared).await);
        drop((shared, one, two));
        assert_eq!(locks.resources(), 0);
    }

    #[tokio::test]
    async fn a_caller_learns_that_a_later_holder_has_come() {
        let locks = Arc::new(ResourceLocks::default());
        let (old, new) = (locks.join("a", 2).unwrap(), locks.join("a", 2).unwrap());
        let token = Token::exclusive(34).unwrap();
        let superseded = old.superseded(token);
        new.raised(Highest { exclusive: 34, any: 34 });
        let mut superseded = Box::pin(superseded);
        assert!(tokio::time::timeout(std::time::Duration::ZERO, &mut superseded).await.is_err());
        new.raised(Highest { exclusive: 35, any: 35 });
        superseded.await;
    }
}
