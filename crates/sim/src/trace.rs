//! What happened, in order: hashed as a whole, and kept in words for the last while.

use std::collections::VecDeque;
use std::fmt::Write as _;

/// Lines kept for the reader of a failure.
const LINES_KEPT: usize = 400;

#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    lines: VecDeque<String>,
    wordy: bool,
}

impl Trace {
    pub(crate) fn new(wordy: bool) -> Self {
        Self { wordy, ..Self::default() }
    }

    /// Mixes an event into the hash: two runs of one seed must agree on every one.
    pub(crate) fn mix(&mut self, word: u64) {
        self.events += 1;
        let mixed = (self.hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.hash = mixed ^ (mixed >> 31);
    }

    pub(crate) fn say(&mut self, now_us: u64, line: impl FnOnce() -> String) {
        if !self.wordy {
            return;
        }
        let mut text = String::new();
        let _ = write!(text, "{:>10.3}s  {}", now_us as f64 / 1e6, line());
        self.lines.push_back(text);
        if self.lines.len() > LINES_KEPT {
            self.lines.pop_front();
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &String> {
        self.lines.iter()
    }
}
