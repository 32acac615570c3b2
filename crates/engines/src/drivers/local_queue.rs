//! This process's waiters, by lock, for engines without a line: one waiter at a time tries to take
//! the lock.

use crate::driver::Request;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{MutexGuard, Notify};

#[derive(Default)]
pub(super) struct LocalQueues {
    /// With the number of places in each line.
    by_name: Mutex<HashMap<String, (usize, Arc<LocalQueue>)>>,
}

#[derive(Default)]
struct LocalQueue {
    /// Held by the waiter whose turn it is. Fair.
    turn: tokio::sync::Mutex<()>,
    /// Tells that waiter to try again.
    changed: Notify,
}

/// A place in a line. The line is removed with its last place.
pub(super) struct QueuePlace<'a> {
    lines: &'a LocalQueues,
    name: &'a str,
    line: Arc<LocalQueue>,
}

impl LocalQueues {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, (usize, Arc<LocalQueue>)>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn enter<'a>(&'a self, name: &'a str) -> QueuePlace<'a> {
        let mut lines = self.lock();
        let (places, line) = lines.entry(name.to_owned()).or_default();
        *places += 1;
        QueuePlace { lines: self, name, line: line.clone() }
    }

    pub(super) fn wake(&self, name: &str) {
        if let Some((_, line)) = self.lock().get(name) {
            line.changed.notify_one();
        }
    }

    #[cfg(feature = "postgres")]
    /// To be called after a time in which notifications may have been missed.
    pub(super) fn wake_all(&self) {
        self.lock().values().for_each(|(_, line)| line.changed.notify_one());
    }
}

impl QueuePlace<'_> {
    /// Waits for a turn to try; `None` if the wait is over first.
    pub(super) async fn turn(&self, request: &Request) -> Option<MutexGuard<'_, ()>> {
        tokio::select! {
            biased;
            turn = self.line.turn.lock() => Some(turn),
            () = request.given_up() => None,
        }
    }

    /// Resolves when the waiter whose turn it is should try again.
    pub(super) async fn changed(&self) {
        self.line.changed.notified().await;
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        let Some((places, _)) = lines.get_mut(self.name) else { return };
        *places -= 1;
        if *places == 0 {
            lines.remove(self.name);
        }
    }
}
