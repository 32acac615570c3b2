//! Read-index rounds: one confirmation of the leader serves everything that arrived before it.

use crate::io::RequestTag;
use crate::types::NodeId;
use holdfast_core::SessionRef;
use std::collections::{BTreeSet, VecDeque};

/// A round without an answer is requested again after this long: the library silently drops
/// requests until a new leader has committed.
const RETRY_MS: u64 = 200;

/// Something that waits for a confirmation.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// A read that must be current.
    Read(RequestTag),
    /// Heartbeats of sessions, from a node.
    Heartbeats { from: NodeId, round: u64, sessions: Vec<SessionRef> },
}

#[derive(Debug)]
pub(crate) struct ReadIndex {
    id: NodeId,
    nonce: u64,
    /// What has arrived since the last round began.
    gathered: Vec<Waiter>,
    running: Option<Running>,
    /// Confirmed, and waiting for this index to be applied.
    confirmed: VecDeque<(u64, Vec<Waiter>)>,
    last_round: u64,
}

#[derive(Debug)]
struct Running {
    context: Vec<u8>,
    asked_ms: u64,
    waiters: Vec<Waiter>,
}

impl ReadIndex {
    pub(crate) fn new(id: NodeId, nonce: u64) -> Self {
        Self {
            id,
            nonce,
            gathered: Vec::new(),
            running: None,
            confirmed: VecDeque::new(),
            last_round: 0,
        }
    }

    /// The context of the next round. The library matches acknowledgements by this alone: a late
    /// one from another node's round, or from this node's before a restart, must not match.
    fn next_context(&mut self) -> Vec<u8> {
        self.last_round += 1;
        let round = self.last_round.to_le_bytes();
        [self.id.0.to_le_bytes(), self.nonce.to_le_bytes(), round].concat()
    }

    pub(crate) fn add(&mut self, waiter: Waiter) {
        self.gathered.push(waiter);
    }

    pub(crate) fn len(&self) -> usize {
        self.gathered.len() + self.running.as_ref().map_or(0, |running| running.waiters.len())
    }

    /// Starts a round if one is needed; returns its context.
    pub(crate) fn begin(&mut self, now_ms: u64) -> Option<Vec<u8>> {
        match &mut self.running {
            Some(running) if now_ms < running.asked_ms + RETRY_MS => return None,
            // What has arrived meanwhile joins in: the new round starts after it too.
            Some(running) => running.waiters.append(&mut self.gathered),
            None if self.gathered.is_empty() => return None,
            None => {
                let waiters = std::mem::take(&mut self.gathered);
                self.running = Some(Running { context: Vec::new(), asked_ms: 0, waiters });
            }
        }
        let context = self.next_context();
        let running = self.running.as_mut()?;
        (running.context, running.asked_ms) = (context.clone(), now_ms);
        Some(context)
    }

    /// A round was confirmed at this index.
    pub(crate) fn confirm(&mut self, context: &[u8], index: u64) {
        if let Some(running) = self.running.take_if(|running| running.context == context) {
            self.confirmed.push_back((index, running.waiters));
        }
    }

    /// Takes the waiters whose index is applied.
    pub(crate) fn done(&mut self, applied: u64) -> Vec<Waiter> {
        let mut done = Vec::new();
        while self.confirmed.front().is_some_and(|(index, _)| *index <= applied) {
            done.extend(self.confirmed.pop_front().into_iter().flat_map(|(_, waiters)| waiters));
        }
        done
    }

    /// Drops heartbeats: they must be confirmed by the same leader that received them.
    pub(crate) fn drop_heartbeats(&mut self) {
        self.retain(|waiter| matches!(waiter, Waiter::Read(_)));
    }

    /// Drops reads that nobody waits for any more, and returns them.
    pub(crate) fn withdraw(&mut self, asks: &BTreeSet<RequestTag>) -> Vec<RequestTag> {
        let mut withdrawn = Vec::new();
        self.retain(|waiter| match waiter {
            Waiter::Read(ask) if asks.contains(ask) => {
                withdrawn.push(*ask);
                false
            }
            _ => true,
        });
        withdrawn
    }

    fn retain(&mut self, mut keep: impl FnMut(&Waiter) -> bool) {
        self.gathered.retain(&mut keep);
        for waiters in self.running.iter_mut().map(|running| &mut running.waiters) {
            waiters.retain(&mut keep);
        }
        for (_, waiters) in &mut self.confirmed {
            waiters.retain(&mut keep);
        }
    }
}
