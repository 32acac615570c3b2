//! Tasks that are blocked until an object is put under a name. The longest-blocked task is woken
//! first.

use crate::{CallId, Caller, index::Index};
use holdfast_core::{KeyKind, LockName};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Names that tasks of one node may wait for. At about 100 bytes each, all stay near 10 MB.
const NAMES_MAX: usize = 100_000;

/// Blocked tasks, in the order in which they blocked.
pub(crate) struct Blocked<T> {
    tasks: BTreeMap<u64, Entry<T>>,
    places: Index<CallId, u64>,
    by_name: BTreeSet<(LockName, u64)>,
    by_deadline: BTreeSet<(Duration, u64)>,
    next: u64,
}

pub(crate) struct Entry<T> {
    pub(crate) caller: Caller,
    pub(crate) call: CallId,
    pub(crate) task: T,
    pub(crate) names: Vec<LockName>,
    pub(crate) kind: KeyKind,
    /// When it times out; `None` is never.
    pub(crate) until: Option<Duration>,
}

impl<T> Default for Blocked<T> {
    fn default() -> Self {
        let (tasks, places, by_name, by_deadline) = Default::default();
        Self { tasks, places, by_name, by_deadline, next: 0 }
    }
}

impl<T> Blocked<T> {
    /// Blocks a task. One that was woken in vain goes back to its old place. Returned if there is
    /// no room.
    pub(crate) fn put(&mut self, entry: Entry<T>, place: Option<u64>) -> Result<(), Entry<T>> {
        if self.by_name.len().saturating_add(entry.names.len()) > NAMES_MAX {
            return Err(entry);
        }
        let place = place.unwrap_or_else(|| {
            self.next = self.next.saturating_add(1);
            self.next
        });
        for name in &entry.names {
            self.by_name.insert((name.clone(), place));
        }
        self.by_deadline.extend(entry.until.map(|until| (until, place)));
        self.places.insert(entry.call, place);
        self.tasks.insert(place, entry);
        Ok(())
    }

    /// Takes out the task that has been blocked longest on an object of this kind under this name,
    /// and its place.
    pub(crate) fn wake(&mut self, name: &LockName, kind: KeyKind) -> Option<(Entry<T>, u64)> {
        if self.by_name.is_empty() {
            return None;
        }
        let mut range = self.by_name.range((name.clone(), 0)..=(name.clone(), u64::MAX));
        let of_kind = |place: &u64| self.tasks.get(place).is_some_and(|entry| entry.kind == kind);
        let place = range.find_map(|(_, place)| Some(*place).filter(of_kind))?;
        Some((self.take(place)?, place))
    }

    /// Takes out the task that has been blocked longest, and its place.
    pub(crate) fn wake_any(&mut self) -> Option<(Entry<T>, u64)> {
        let place = *self.tasks.first_key_value()?.0;
        Some((self.take(place)?, place))
    }

    /// Takes out a task that has timed out.
    pub(crate) fn time_out(&mut self, now: Duration) -> Option<Entry<T>> {
        let (until, place) = *self.by_deadline.first()?;
        if until <= now { self.take(place) } else { None }
    }

    /// When the next task times out; `None` if none does.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.by_deadline.first().map(|(until, _)| *until)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Takes out the task of a call, if it is blocked.
    pub(crate) fn remove(&mut self, call: CallId) -> Option<Entry<T>> {
        let place = *self.places.get(&call)?;
        self.take(place)
    }

    fn take(&mut self, place: u64) -> Option<Entry<T>> {
        let entry = self.tasks.remove(&place)?;
        for name in &entry.names {
            self.by_name.remove(&(name.clone(), place));
        }
        if let Some(until) = entry.until {
            self.by_deadline.remove(&(until, place));
        }
        self.places.remove(&entry.call);
        Some(entry)
    }
}
