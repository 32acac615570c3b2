//! Tracks which connections and requests are idle. One that asks for nothing must not keep others
//! out: when there is no room, the one that has been idle longest is evicted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A connection that has made a request keeps its place for this much longer than one that never
/// has.
const HEAD_START: Duration = Duration::from_secs(1);

/// The idle connections (or requests still arriving) of one port.
#[derive(Default)]
pub(crate) struct IdleSet(Mutex<Idle>);

/// Since when one has been idle; the number distinguishes entries of the same instant.
type Since = (Instant, u64);

#[derive(Default)]
struct Idle {
    next: u64,
    /// The one that has been idle longest comes first.
    by_time: BTreeMap<Since, Arc<Notify>>,
}

/// The activity of one connection, or of one request that is still arriving. Dropping it removes it
/// from the set.
pub(crate) struct Activity {
    set: Arc<IdleSet>,
    evicted: Arc<Notify>,
    state: Mutex<State>,
}

struct State {
    /// How many requests are in progress.
    requests: usize,
    idle_since: Instant,
    /// Its key in the set, while it is idle and not evicted.
    entry: Option<Since>,
    evicted: bool,
}

/// One request in progress: the connection is not idle while this exists.
pub(crate) struct Busy(Arc<Activity>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while holding one, and the content would still be consistent if one did.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl IdleSet {
    /// Adds one that has made no request yet.
    pub(crate) fn enter(self: &Arc<Self>) -> Arc<Activity> {
        let evicted = Arc::<Notify>::default();
        let now = Instant::now();
        let entry = Some(self.add(now, &evicted));
        let state = State { requests: 0, idle_since: now, entry, evicted: false };
        Arc::new(Activity { set: self.clone(), evicted, state: Mutex::new(state) })
    }

    fn add(&self, since: Instant, evicted: &Arc<Notify>) -> Since {
        let mut idle = lock(&self.0);
        let entry = (since, idle.next);
        idle.next += 1;
        idle.by_time.insert(entry, evicted.clone());
        entry
    }

    /// How many are idle.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).by_time.len()
    }

    /// Notifies the one that has been idle longest that it is evicted; returns false if none is
    /// idle.
    pub(crate) fn evict_oldest(&self) -> bool {
        let Some((_, evicted)) = lock(&self.0).by_time.pop_first() else { return false };
        evicted.notify_one();
        true
    }
}

impl Activity {
    /// Marks the start of a request, which lasts until the returned guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        let mut state = lock(&self.state);
        state.requests += 1;
        self.leave_set(&mut state);
        Busy(self.clone())
    }

    /// Exempts it from eviction for good: it has proved its purpose.
    pub(crate) fn keep(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        if state.requests == 0 {
            state.requests = 1;
            self.leave_set(&mut state);
        }
    }

    fn leave_set(&self, state: &mut State) {
        if let Some(entry) = state.entry.take() {
            // If it is no longer in the set, it has just been evicted.
            state.evicted |= lock(&self.set.0).by_time.remove(&entry).is_none();
        }
    }

    /// How long it has been idle; `None` if it isn't.
    pub(crate) fn idle_for(&self) -> Option<Duration> {
        let state = lock(&self.state);
        (state.requests == 0).then(|| state.idle_since.elapsed())
    }

    /// Resolves once, when it is evicted. A request may have begun at the same moment.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        let entry = lock(&self.state).entry.take();
        if let Some(entry) = entry {
            lock(&self.set.0).by_time.remove(&entry);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.requests = state.requests.saturating_sub(1);
        if state.requests == 0 {
            state.idle_since = Instant::now();
            if !state.evicted {
                let since = state.idle_since + HEAD_START;
                state.entry = Some(self.0.set.add(since, &self.0.evicted));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    async fn is_evicted(activity: &Activity) -> bool {
        timeout(Duration::from_millis(20), activity.evicted()).await.is_ok()
    }

    #[tokio::test]
    async fn longest_idle_connection_is_evicted_first() {
        let set = Arc::<IdleSet>::default();
        let (first, second, third) = (set.enter(), set.enter(), set.enter());
        let busy = first.begin();
        assert!(set.evict_oldest());
        assert!(is_evicted(&second).await && !is_evicted(&first).await);
        drop(third);
        assert_eq!(set.len(), 0);
        assert!(!set.evict_oldest());

        // Idle again, it is evicted after one that has made no request at all.
        drop(busy);
        let fourth = set.enter();
        assert!(set.evict_oldest() && is_evicted(&fourth).await);
        assert!(set.evict_oldest() && is_evicted(&first).await);
        // It has already been evicted: once is enough.
        drop(first.begin());
        assert_eq!(set.len(), 0);
        fourth.keep();
        assert!(fourth.idle_for().is_none());
    }
}
