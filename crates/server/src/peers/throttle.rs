//! Limits log messages that a stranger can cause as often as it likes: each is logged once per
//! interval, and the rest are counted.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The interval after which suppressed messages are summed up and every message may be logged
/// again.
pub(super) const SUMMARY_EVERY: Duration = Duration::from_secs(10);

/// Distinct messages per interval. There are about ten; strangers can vary some of them.
const DIFFERENT_MAX: usize = 16;

#[derive(Default)]
pub(super) struct Throttle(Mutex<Logged>);

#[derive(Default)]
struct Logged {
    messages: BTreeSet<String>,
    held_back: u64,
}

impl Throttle {
    fn logged(&self) -> MutexGuard<'_, Logged> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether to log a message now; otherwise it is counted as suppressed.
    pub(super) fn admits(&self, message: &str) -> bool {
        let mut logged = self.logged();
        let admitted = logged.messages.len() < DIFFERENT_MAX && !logged.messages.contains(message);
        if admitted {
            logged.messages.insert(message.to_owned());
        } else {
            logged.held_back += 1;
        }
        admitted
    }

    /// Starts a new interval; returns how many messages were suppressed.
    pub(super) fn sum_up(&self) -> u64 {
        std::mem::take(&mut *self.logged()).held_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_messages_are_throttled() {
        let throttle = Throttle::default();
        assert!(throttle.admits("a") && !throttle.admits("a") && throttle.admits("b"));
        let admitted = (0..1_000).filter(|number| throttle.admits(&number.to_string())).count();
        assert_eq!(admitted, DIFFERENT_MAX - 2);
        assert_eq!(throttle.sum_up(), 1 + 1_000 - admitted as u64);
        assert!(throttle.admits("a"));
        assert_eq!(throttle.sum_up(), 0);
    }
}
