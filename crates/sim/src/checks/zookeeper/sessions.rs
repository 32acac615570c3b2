//! A session that its client is told has ended has ended. One that it is told lives had not ended
//! before it asked.

use crate::checks::{Applied, Violation};
use holdfast_core::{Effect, SessionId};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// When each one ended.
    ended: BTreeMap<SessionId, u64>,
}

impl Sessions {
    pub(super) fn applied(&mut self, applied: &Applied<'_>) {
        for effect in applied.effects {
            if let Effect::SessionEnded { session, .. } = effect {
                self.ended.insert(*session, applied.now_us);
            }
        }
    }

    pub(super) fn told_alive(&self, session: SessionId, asked_us: u64) -> Result<(), Violation> {
        match self.ended.get(&session) {
            Some(at_us) if *at_us < asked_us => Err(format!(
                "sessions: a client was told that session {session} lives, which ended {} ms before it \
                 asked",
                (asked_us - at_us) / 1_000
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn told_expired(&self, session: SessionId) -> Result<(), Violation> {
        if self.ended.contains_key(&session) {
            return Ok(());
        }
        Err(format!("sessions: a client was told that session {session} has ended, which lives"))
    }
}
