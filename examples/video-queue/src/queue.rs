//! A queue like most: it hands out a chunk until a worker reports it done, and does not know who is
//! working on it.

use std::collections::BTreeSet;
use std::sync::Mutex;

/// A worker gets one of the first so many chunks, so many workers get the same one.
const WINDOW: u64 = 32;

#[derive(Debug)]
pub(crate) struct Queue {
    left: Mutex<BTreeSet<usize>>,
}

impl Queue {
    pub(crate) fn new(chunks: usize) -> Self {
        Self { left: Mutex::new((0..chunks).collect()) }
    }

    /// A chunk that is not done yet; `None` if all are.
    pub(crate) fn next(&self, random: u64) -> Option<usize> {
        let left = self.left.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let first: Vec<usize> = left.iter().copied().take(WINDOW as usize).collect();
        let which = random.checked_rem(first.len() as u64)?;
        first.get(usize::try_from(which).ok()?).copied()
    }

    pub(crate) fn done(&self, chunk: usize) {
        self.left.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&chunk);
    }

    pub(crate) fn left(&self) -> usize {
        self.left.lock().unwrap_or_else(std::sync::PoisonError::into_inner).len()
    }
}
