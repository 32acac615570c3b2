//! Read-index rounds: one confirmation of the leader serves everything that came before it.

use crate::io::Ask;
use crate::types::NodeId;
use holdfast_core::SessionRef;
use std::collections::VecDeque;

/// A round that got no answer is asked for again after this long: the library drops requests
/// silently while a new leader has not committed yet.
const RETRY_MS: u64 = 200;

/// What waits for a confirmation.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// A read that must be current.
    Read(Ask),
    /// Heartbeats of sessions, from a node.
    Beats { from: NodeId, round: u64, sessions: Vec<SessionRef> },
}

#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// What came since the last round began.
    gathered: Vec<Waiter>,
    running: Option<Running>,
    /// Confirmed, and waiting for this index to be applied.
    confirmed: VecDeque<(u64, Vec<Waiter>)>,
    last_round: u64,
}

#[derive(Debug)]
struct Running {
    round: u64,
    asked_ms: u64,
    waiters: Vec<Waiter>,
}

impl Rounds {
    pub(crate) fn add(&mut self, waiter: Waiter) {
        self.gathered.push(waiter);
    }

    pub(crate) fn len(&self) -> usize {
        self.gathered.len() + self.running.as_ref().map_or(0, |running| running.waiters.len())
    }

    /// Begins a round if one is needed; returns what to ask under.
    pub(crate) fn begin(&mut self, now_ms: u64) -> Option<Vec<u8>> {
        match &mut self.running {
            Some(running) if now_ms < running.asked_ms + RETRY_MS => return None,
            // What came meanwhile joins: the new round begins after it too.
            Some(running) => running.waiters.append(&mut self.gathered),
            None if self.gathered.is_empty() => return None,
            None => {
                let waiters = std::mem::take(&mut self.gathered);
                self.running = Some(Running { round: 0, asked_ms: 0, waiters });
            }
        }
        self.last_round += 1;
        let running = self.running.as_mut()?;
        (running.round, running.asked_ms) = (self.last_round, now_ms);
        Some(self.last_round.to_le_bytes().to_vec())
    }

    /// A round was confirmed at this index.
    pub(crate) fn confirm(&mut self, context: &[u8], index: u64) {
        let is_it = |running: &mut Running| running.round.to_le_bytes() == context;
        if let Some(running) = self.running.take_if(is_it) {
            self.confirmed.push_back((index, running.waiters));
        }
    }

    /// Those whose index is applied.
    pub(crate) fn done(&mut self, applied: u64) -> Vec<Waiter> {
        let mut done = Vec::new();
        while self.confirmed.front().is_some_and(|(index, _)| *index <= applied) {
            done.extend(self.confirmed.pop_front().into_iter().flat_map(|(_, waiters)| waiters));
        }
        done
    }

    /// Drops heartbeats: whoever confirmed them must be the one that received them.
    pub(crate) fn drop_beats(&mut self) {
        let is_read = |waiter: &Waiter| matches!(waiter, Waiter::Read(_));
        self.gathered.retain(is_read);
        for waiters in self.running.iter_mut().map(|running| &mut running.waiters) {
            waiters.retain(is_read);
        }
        for (_, waiters) in &mut self.confirmed {
            waiters.retain(is_read);
        }
    }
}
