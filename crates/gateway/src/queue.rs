//! The queue of a connection's events: bounded in number and in bytes.

use crate::SessionEvent;
use std::collections::VecDeque;

/// Events that wait for a connection to read them, in the order in which they happened. One that
/// overflows takes nothing more: something was left out, so its connection must end.
#[derive(Debug)]
pub struct EventQueue {
    events: VecDeque<SessionEvent>,
    bytes: usize,
    events_max: usize,
    bytes_max: usize,
    overflowed: bool,
}

impl EventQueue {
    /// An empty one with these bounds.
    pub fn new(events_max: usize, bytes_max: usize) -> Self {
        let (events, bytes, overflowed) = Default::default();
        Self { events, bytes, events_max, bytes_max, overflowed }
    }

    /// Adds an event; false if the queue has overflowed.
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

    /// Lets it overflow: its connection must end.
    pub fn close(&mut self) {
        self.overflowed = true;
    }

    /// Whether something was left out.
    pub fn has_overflowed(&self) -> bool {
        self.overflowed
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
