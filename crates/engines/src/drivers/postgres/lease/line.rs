//! The waiters of this process, by lock: one after the other they become the one that looks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

#[derive(Default)]
pub(super) struct Lines {
    /// With the number of places in each line.
    by_name: Mutex<HashMap<String, (usize, Arc<Line>)>>,
}

#[derive(Default)]
pub(super) struct Line {
    /// Held by the waiter that looks; fair.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// Tells the one that looks to look again.
    pub(super) changed: Notify,
}

/// A place in a line; the line goes with its last place.
pub(super) struct Place<'a> {
    lines: &'a Lines,
    name: &'a str,
    pub(super) line: Arc<Line>,
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, (usize, Arc<Line>)>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn enter<'a>(&'a self, name: &'a str) -> Place<'a> {
        let mut lines = self.lock();
        let (places, line) = lines.entry(name.to_owned()).or_default();
        *places += 1;
        Place { lines: self, name, line: line.clone() }
    }

    pub(super) fn wake(&self, name: &str) {
        if let Some((_, line)) = self.lock().get(name) {
            line.changed.notify_one();
        }
    }

    /// After a time in which notifications may have been missed.
    pub(super) fn wake_all(&self) {
        self.lock().values().for_each(|(_, line)| line.changed.notify_one());
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        let Some((places, _)) = lines.get_mut(self.name) else { return };
        *places -= 1;
        if *places == 0 {
            lines.remove(self.name);
        }
    }
}
