//! What happened, in order: hashed as a whole, and kept in words for the last while.

use std::collections::VecDeque;

/// Lines kept for the reader of a failure: what became of nodes goes further back than what
/// entries did, of which there are a hundred times more.
const EVENTS_KEPT: usize = 1_000;
const EFFECTS_KEPT: usize = 300;
const TALK_KEPT: usize = 2_000;

/// A message may hold much.
const LINE_BYTES_MAX: usize = 400;

#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    said: u64,
    events: VecDeque<(u64, String)>,
    effects: VecDeque<(u64, String)>,
    talk: VecDeque<(u64, String)>,
    wordy: bool,
}

impl Trace {
    pub(crate) fn new(wordy: bool) -> Self {
        Self { wordy, ..Self::default() }
    }

    /// Mixes an event into the hash: two runs of one seed must agree on every one.
    pub(crate) fn mix(&mut self, word: u64) {
        let mixed = (self.hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.hash = mixed ^ (mixed >> 31);
    }

    pub(crate) fn say(&mut self, now_us: u64, line: impl FnOnce() -> String) {
        if self.wordy {
            self.said += 1;
            keep(&mut self.events, EVENTS_KEPT, (self.said, stamped(now_us, &line())));
        }
    }

    /// Like `say`, for what happens all the time.
    pub(crate) fn note_effect(&mut self, now_us: u64, line: impl FnOnce() -> String) {
        if self.wordy {
            self.said += 1;
            keep(&mut self.effects, EFFECTS_KEPT, (self.said, stamped(now_us, &line())));
        }
    }

    /// Like `note_effect`, for what clients are told and do.
    pub(crate) fn talk(&mut self, now_us: u64, line: impl FnOnce() -> String) {
        if self.wordy {
            self.said += 1;
            let mut line = line();
            line.truncate(line.floor_char_boundary(LINE_BYTES_MAX));
            keep(&mut self.talk, TALK_KEPT, (self.said, stamped(now_us, &line)));
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// What is kept, in order.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &String> {
        let mut lines: Vec<_> = self.events.iter().chain(&self.effects).chain(&self.talk).collect();
        lines.sort();
        lines.into_iter().map(|(_, line)| line)
    }
}

fn stamped(now_us: u64, line: &str) -> String {
    format!("{:>10.3}s  {line}", now_us as f64 / 1e6)
}

fn keep(lines: &mut VecDeque<(u64, String)>, kept: usize, line: (u64, String)) {
    lines.push_back(line);
    if lines.len() > kept {
        lines.pop_front();
    }
}
