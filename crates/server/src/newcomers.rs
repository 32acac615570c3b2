//! Connections that have not yet shown what they are there for. They must not take the places of
//! others: when there is no room, the one that has been silent longest goes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Those of one port.
#[derive(Default)]
pub(crate) struct Newcomers(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    next: u64,
    /// In the order in which they came.
    by_number: BTreeMap<u64, oneshot::Sender<()>>,
}

/// One of them, until it has arrived or is dropped.
pub(crate) struct Newcomer {
    newcomers: Arc<Newcomers>,
    number: u64,
    arrived: AtomicBool,
}

/// Tells a newcomer that it has to go.
pub(crate) struct Notice(oneshot::Receiver<()>);

impl Newcomers {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more.
    pub(crate) fn enter(self: &Arc<Self>) -> (Arc<Newcomer>, Notice) {
        let (tell, told) = oneshot::channel();
        let mut waiting = self.waiting();
        let number = waiting.next;
        waiting.next += 1;
        waiting.by_number.insert(number, tell);
        let arrived = AtomicBool::new(false);
        (Arc::new(Newcomer { newcomers: self.clone(), number, arrived }), Notice(told))
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting().by_number.len()
    }

    /// Tells the one that came first to go; false if there is none.
    pub(crate) fn evict_oldest(&self) -> bool {
        let Some((_, tell)) = self.waiting().by_number.pop_first() else { return false };
        // If nobody hears it, the connection is about to end anyway.
        let _ = tell.send(());
        true
    }
}

impl Newcomer {
    /// It has shown what it is there for, and is none any more.
    pub(crate) fn arrived(&self) {
        if !self.arrived.swap(true, Ordering::Relaxed) {
            self.newcomers.waiting().by_number.remove(&self.number);
        }
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.arrived();
    }
}

impl Notice {
    /// Resolves when the newcomer has to go; never once it has arrived.
    pub(crate) async fn given(self) {
        if self.0.await.is_err() {
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Duration, timeout};

    #[tokio::test]
    async fn the_oldest_goes_and_who_has_arrived_stays() {
        let newcomers = Arc::<Newcomers>::default();
        let (first, first_notice) = newcomers.enter();
        let (_second, second_notice) = newcomers.enter();
        let (third, _third_notice) = newcomers.enter();
        first.arrived();
        assert!(newcomers.evict_oldest());
        second_notice.given().await;
        assert!(timeout(Duration::from_millis(20), first_notice.given()).await.is_err());
        drop(third);
        assert_eq!(newcomers.len(), 0);
        assert!(!newcomers.evict_oldest());
    }
}
