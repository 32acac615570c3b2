//! Room for tickets and other requests, so that nothing in a session grows without bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit on how many tickets, or how many other requests, exist at a time.
#[derive(Debug)]
pub struct RoomLimit {
    free: AtomicUsize,
}

impl RoomLimit {
    /// Room for this many.
    pub fn new(rooms: usize) -> Arc<Self> {
        Arc::new(Self { free: AtomicUsize::new(rooms) })
    }

    /// Room for one more; `None` if it is full.
    pub fn take(self: &Arc<Self>) -> Option<Room> {
        let less = |free: usize| free.checked_sub(1);
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
        Some(Room(self.clone()))
    }

    /// How many more there is room for.
    pub fn free(&self) -> usize {
        self.free.load(Ordering::Relaxed)
    }
}

/// Room for one ticket or one request. It moves with the ticket: from the call to the guard, and
/// with the guard's release back to the session, which drops it when nothing is left of the ticket.
#[derive(Debug)]
pub struct Room(Arc<RoomLimit>);

impl Drop for Room {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, Ordering::Relaxed);
    }
}
