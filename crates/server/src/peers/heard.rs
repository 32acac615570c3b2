//! When each node was last heard, and over which of its connections.

use super::Shared;
use holdfast_node::NodeId;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// What is known of one node's connections to this one.
#[derive(Debug)]
pub(super) struct Heard {
    begun: Instant,
    /// Milliseconds since then, of the last message.
    last_ms: AtomicU64,
    /// Connections so far: the number of the latest.
    connections: AtomicU64,
    /// It has dialed once more.
    anew: Notify,
}

impl Heard {
    fn new() -> Self {
        let (last_ms, connections, anew) = Default::default();
        Self { begun: Instant::now(), last_ms, connections, anew }
    }

    fn ms(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.begun);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// A message came.
    pub(super) fn note(&self) {
        self.last_ms.store(self.ms(Instant::now()), Ordering::Relaxed);
    }

    /// Whether a message came at that time or later.
    pub(super) fn since(&self, then: Instant) -> bool {
        self.last_ms.load(Ordering::Relaxed) >= self.ms(then)
    }

    /// A new connection; its number.
    pub(super) fn connected(&self) -> u64 {
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        if before > 0 {
            self.anew.notify_one();
        }
        before + 1
    }

    /// Waits until the node dials once more: the way back may be as dead as the one that it gave up,
    /// though everything that it says is heard.
    pub(super) async fn dials_anew(&self) {
        self.anew.notified().await;
    }

    /// Whether no other connection has come since.
    pub(super) fn is_latest(&self, number: u64) -> bool {
        self.connections.load(Ordering::Relaxed) == number
    }
}

impl Shared {
    pub(super) fn heard(&self, node: NodeId) -> Arc<Heard> {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.entry(node).or_insert_with(|| Arc::new(Heard::new())).clone()
    }
}
