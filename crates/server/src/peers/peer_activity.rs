//! When each node last sent a message, and over which of its connections.

use super::Shared;
use holdfast_node::NodeId;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// What is known about one node's connections to this one.
#[derive(Debug)]
pub(super) struct PeerActivity {
    begun: Instant,
    /// When the last message arrived, in milliseconds since `begun`.
    last_ms: AtomicU64,
    /// How many connections there have been, which is also the number of the latest.
    connections: AtomicU64,
    /// Notified when the node dials again.
    reconnected: Notify,
}

impl PeerActivity {
    fn new() -> Self {
        let (last_ms, connections, reconnected) = Default::default();
        Self { begun: Instant::now(), last_ms, connections, reconnected }
    }

    fn ms(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.begun);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// Records that a message arrived.
    pub(super) fn note(&self) {
        self.last_ms.store(self.ms(Instant::now()), Ordering::Relaxed);
    }

    /// Whether a message arrived at `then` or later.
    pub(super) fn since(&self, then: Instant) -> bool {
        self.last_ms.load(Ordering::Relaxed) >= self.ms(then)
    }

    /// Counts a new connection and returns its number.
    pub(super) fn connected(&self) -> u64 {
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        if before > 0 {
            self.reconnected.notify_one();
        }
        before + 1
    }

    /// Waits until the node dials again: our connection to it may be as dead as the one it gave up,
    /// although all its messages arrive here.
    pub(super) async fn wait_reconnected(&self) {
        self.reconnected.notified().await;
    }

    /// Whether no later connection has been made.
    pub(super) fn is_latest(&self, number: u64) -> bool {
        self.connections.load(Ordering::Relaxed) == number
    }
}

impl Shared {
    pub(super) fn peer_activity(&self, node: NodeId) -> Arc<PeerActivity> {
        let mut peer_activity = self.peer_activity.lock().unwrap_or_else(PoisonError::into_inner);
        peer_activity.entry(node).or_insert_with(|| Arc::new(PeerActivity::new())).clone()
    }
}
