//! The leader's memory of heartbeats. Not replicated: a new leader starts with none and gives
//! every session one full TTL.

use holdfast_core::SessionId;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(crate) struct Liveness {
    sessions: BTreeMap<SessionId, TrackedSession>,
    silent_at: BTreeSet<(u64, SessionId)>,
}

#[derive(Debug, Clone, Copy)]
struct TrackedSession {
    ttl_ms: u64,
    silent_at_ms: u64,
    /// Its end is proposed: none of its heartbeats is acknowledged any more.
    ending: bool,
}

impl Liveness {
    /// Starts with all sessions, each with a full TTL from now.
    pub(crate) fn begin(sessions: impl Iterator<Item = (SessionId, u64)>, now_ms: u64) -> Self {
        // Collected rather than inserted one by one: with a million sessions, a new leader has no
        // time to lose.
        let beat = |(id, ttl_ms): (SessionId, u64)| {
            let silent_at_ms = now_ms.saturating_add(ttl_ms);
            (id, TrackedSession { ttl_ms, silent_at_ms, ending: false })
        };
        let sessions: BTreeMap<SessionId, TrackedSession> = sessions.map(beat).collect();
        let silent_at = sessions.iter().map(|(id, beat)| (beat.silent_at_ms, *id)).collect();
        Self { sessions, silent_at }
    }

    /// Starts tracking a session. A node that opens its session twice gets the same one, which does
    /// not count as a heartbeat.
    pub(crate) fn open(&mut self, id: SessionId, ttl_ms: u64, now_ms: u64) {
        if self.sessions.contains_key(&id) {
            return;
        }
        let silent_at_ms = now_ms.saturating_add(ttl_ms);
        self.sessions.insert(id, TrackedSession { ttl_ms, silent_at_ms, ending: false });
        self.silent_at.insert((silent_at_ms, id));
    }

    pub(crate) fn close(&mut self, id: SessionId) {
        if let Some(beat) = self.sessions.remove(&id) {
            self.silent_at.remove(&(beat.silent_at_ms, id));
        }
    }

    pub(crate) fn beat(&mut self, id: SessionId, now_ms: u64) {
        let Some(beat) = self.sessions.get_mut(&id).filter(|beat| !beat.ending) else { return };
        self.silent_at.remove(&(beat.silent_at_ms, id));
        beat.silent_at_ms = now_ms.saturating_add(beat.ttl_ms);
        self.silent_at.insert((beat.silent_at_ms, id));
    }

    pub(crate) fn is_ending(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|beat| beat.ending)
    }

    pub(crate) fn next_silent_at_ms(&self) -> Option<u64> {
        self.silent_at.first().map(|(silent_at_ms, _)| *silent_at_ms)
    }

    /// Takes a session that has gone silent; its end must be proposed now.
    pub(crate) fn take_silent(&mut self, now_ms: u64) -> Option<SessionId> {
        let (silent_at_ms, id) = *self.silent_at.first()?;
        if silent_at_ms > now_ms {
            return None;
        }
        self.silent_at.remove(&(silent_at_ms, id));
        if let Some(beat) = self.sessions.get_mut(&id) {
            beat.ending = true;
        }
        Some(id)
    }
}
