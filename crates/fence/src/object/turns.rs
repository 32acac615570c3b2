//! Makes this process's calls for one resource take turns.
//!
//! A put replaces only what its writer has read, so of several concurrent ones all but one are in
//! vain. Taking turns avoids that. It is not what keeps the resource intact: a call does not wait
//! behind one that hangs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long without any progress until waiting calls go ahead without their turn. A later holder
/// must not wait for a stalled one.
const STALLED: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(super) struct Turns {
    lines: Mutex<HashMap<String, ResourceQueue>>,
}

#[derive(Debug)]
struct ResourceQueue {
    /// One permit.
    turn: Arc<Semaphore>,
    progress: Arc<Progress>,
    /// How many calls are waiting or have their turn.
    callers: usize,
}

#[derive(Debug, Default)]
struct Progress {
    /// How many calls have had their turn.
    finished: AtomicU64,
    /// Whether the call whose turn it is has stalled: then nobody waits for it.
    stalled: AtomicBool,
}

/// A call's turn, or its permission to go ahead without one. Ends when dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    resource: String,
    progress: Arc<Progress>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// Waits for this call's turn, in the order of the calls.
    pub(super) async fn wait(self: &Arc<Self>, resource: &str) -> Turn {
        let (semaphore, mut turn) = self.join(resource);
        let Progress { finished, stalled } = &*turn.progress.clone();
        if let Ok(permit) = semaphore.clone().try_acquire_owned() {
            turn.permit = Some(permit);
            return turn;
        }
        let mut permit = std::pin::pin!(semaphore.acquire_owned());
        while !stalled.load(Ordering::Relaxed) {
            let before = finished.load(Ordering::Relaxed);
            match tokio::time::timeout(STALLED, &mut permit).await {
                Ok(permit) => {
                    turn.permit = permit.ok();
                    break;
                }
                Err(_) if finished.load(Ordering::Relaxed) != before => {}
                Err(_) => stalled.store(true, Ordering::Relaxed),
            }
        }
        turn
    }

    fn join(self: &Arc<Self>, resource: &str) -> (Arc<Semaphore>, Turn) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let line = lines.entry(resource.to_owned()).or_insert_with(|| ResourceQueue {
            turn: Arc::new(Semaphore::new(1)),
            progress: Arc::default(),
            callers: 0,
        });
        line.callers += 1;
        let turn = Turn {
            turns: self.clone(),
            resource: resource.to_owned(),
            progress: line.progress.clone(),
            permit: None,
        };
        (line.turn.clone(), turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.permit.is_some() {
            self.progress.finished.fetch_add(1, Ordering::Relaxed);
            self.progress.stalled.store(false, Ordering::Relaxed);
        }
        let mut lines = self.turns.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get_mut(&self.resource) {
            line.callers -= 1;
            if line.callers == 0 {
                lines.remove(&self.resource);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_take_turns_but_skip_a_hanging_one() {
        let turns = Arc::<Turns>::default();
        let hangs = turns.wait("a").await;
        let other = turns.wait("b").await;
        let began = tokio::time::Instant::now();
        let ahead = turns.wait("a").await;
        assert!(began.elapsed() >= STALLED && ahead.permit.is_none());
        // By now it is known to have stalled.
        let known = std::pin::pin!(turns.wait("a"));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(known.poll(&mut context).is_ready());
        drop((hangs, other));
        let next = turns.wait("a").await;
        assert!(next.permit.is_some());
        drop((ahead, next));
        assert!(turns.lines.lock().unwrap().is_empty(), "it takes no memory");
    }

    #[tokio::test]
    async fn slow_line_is_not_stalled() {
        let turns = Arc::<Turns>::default();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..12 {
            let turns = turns.clone();
            tasks.spawn(async move {
                let turn = turns.wait("a").await;
                tokio::time::sleep(STALLED / 8).await;
                turn.permit.is_some()
            });
        }
        assert_eq!(tasks.join_all().await, [true; 12]);
        assert!(turns.lines.lock().unwrap().is_empty());
    }
}
