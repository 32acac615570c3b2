//! Which requests are inside which resource: one with an exclusive token, or several with shared ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::Mode;

/// The resources with a request inside or waiting. Others take no memory.
#[derive(Debug, Default)]
pub(super) struct Queues {
    entries: Mutex<HashMap<String, Entry>>,
}

#[derive(Debug, Default)]
struct Entry {
    lock: Arc<RwLock<()>>,
    /// Requests inside or waiting.
    users: usize,
}

/// A place in the queue of a resource, given up on drop.
#[derive(Debug)]
struct Place {
    queues: Arc<Queues>,
    resource: String,
}

/// The right to be inside the resource, given up on drop.
#[derive(Debug)]
pub(super) struct Inside {
    // Dropped first: an entry must not be removed while its lock is held.
    _guard: Guard,
    _place: Place,
}

#[derive(Debug)]
#[allow(dead_code, reason = "what counts is that they are dropped")]
enum Guard {
    Exclusive(OwnedRwLockWriteGuard<()>),
    Shared(OwnedRwLockReadGuard<()>),
}

impl Queues {
    /// Waits for its turn. `None` if `users_max` requests are there already.
    pub(super) async fn enter(
        self: &Arc<Self>,
        resource: &str,
        mode: Mode,
        users_max: usize,
    ) -> Option<Inside> {
        let lock = {
            let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            let entry = entries.entry(resource.to_owned()).or_default();
            if entry.users >= users_max {
                return None;
            }
            entry.users += 1;
            entry.lock.clone()
        };
        let place = Place { queues: self.clone(), resource: resource.to_owned() };
        let guard = match mode {
            Mode::Exclusive => Guard::Exclusive(lock.write_owned().await),
            Mode::Shared => Guard::Shared(lock.read_owned().await),
        };
        Some(Inside { _guard: guard, _place: place })
    }

    #[cfg(test)]
    fn resources(&self) -> usize {
        self.entries.lock().unwrap().len()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut entries = self.queues.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get_mut(&self.resource) {
            entry.users -= 1;
            if entry.users == 0 {
                entries.remove(&self.resource);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_resource_that_nobody_is_in_or_waits_for_is_forgotten() {
        let queues = Arc::new(Queues::default());
        let inside = queues.enter("a", Mode::Exclusive, 2).await.unwrap();
        let mut waits = Box::pin(queues.enter("a", Mode::Shared, 2));
        assert!(tokio::time::timeout(std::time::Duration::ZERO, &mut waits).await.is_err());
        assert!(queues.enter("a", Mode::Shared, 2).await.is_none(), "two are there");
        drop(waits);
        assert_eq!(queues.resources(), 1);
        drop(inside);
        assert_eq!(queues.resources(), 0);
        let shared = queues.enter("a", Mode::Shared, 2).await.unwrap();
        let with_it = queues.enter("a", Mode::Shared, 2).await.unwrap();
        drop((shared, with_it));
        assert_eq!(queues.resources(), 0);
    }
}
