//! Messages that a stranger can cause as often as it likes: each is logged once in a while, and the
//! rest are counted.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often what was held back is summed up, and every message may be logged again.
pub(super) const SUMMARY_EVERY: Duration = Duration::from_secs(10);

/// Different messages within that time. There are about ten; strangers can vary some of them.
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

    /// Whether a message is to be logged now; otherwise it is counted.
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

    /// Begins anew; how many were held back.
    pub(super) fn sum_up(&self) -> u64 {
        std::mem::take(&mut *self.logged()).held_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_admitted_once_and_only_so_many() {
        let throttle = Throttle::default();
        assert!(throttle.admits("a") && !throttle.admits("a") && throttle.admits("b"));
        let admitted = (0..1_000).filter(|number| throttle.admits(&number.to_string())).count();
        assert_eq!(admitted, DIFFERENT_MAX - 2);
        assert_eq!(throttle.sum_up(), 1 + 1_000 - admitted as u64);
        assert!(throttle.admits("a"));
        assert_eq!(throttle.sum_up(), 0);
    }
}
