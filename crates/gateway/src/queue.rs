//! The queue of a connection's events, bounded in number and in bytes.

use crate::SessionEvent;
use std::collections::VecDeque;

/// Events that a connection has yet to read, in order. Once it has overflowed it accepts nothing
/// more: an event is missing, so its connection must be closed.
#[derive(Debug)]
pub struct EventQueue {
    events: VecDeque<SessionEvent>,
    bytes: usize,
    events_max: usize,
    bytes_max: usize,
    overflowed: bool,
}

impl EventQueue {
    /// An empty queue with these limits.
    pub fn new(events_max: usize, bytes_max: usize) -> Self {
        let (events, bytes, overflowed) = Default::default();
        Self { events, bytes, events_max, bytes_max, overflowed }
    }

    /// Adds an event; returns false if the queue has overflowed.
    pub fn push(&mut self, event: SessionEvent) -> bool {
        let full = self.events.len() >= self.events_max || self.bytes > self.bytes_max;
        self.overflowed |= full;
        if !self.overflowed {
            self.bytes = self.bytes.saturating_add(event.bytes());
            self.events.push_back(event);
        }
        !self.overflowed
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<SessionEvent> {
        let event = self.events.pop_front()?;
        self.bytes = self.bytes.saturating_sub(event.bytes());
        Some(event)
    }

    /// Marks it as overflowed, so that its connection is closed.
    pub fn close(&mut self) {
        self.overflowed = true;
    }

    /// Whether an event is missing.
    pub fn has_overflowed(&self) -> bool {
        self.overflowed
    }

    /// Bytes in the queue.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
