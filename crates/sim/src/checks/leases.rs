//! A lease never ends early: a session does not expire within its TTL of an acknowledged heartbeat.

use super::{Applied, Violation};
use holdfast_core::{Effect, EndReason, SessionId};
use std::collections::BTreeMap;

/// Clock rates may differ by one in a hundred: so much less of a TTL may pass.
const RATE_MARGIN_PER_MILLE: u64 = 980;

#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// By session: no expiry before this.
    sessions: BTreeMap<SessionId, u64>,
    /// When sessions expired.
    expired: BTreeMap<SessionId, u64>,
}

impl Leases {
    pub(crate) fn beat(
        &mut self,
        session: SessionId,
        sent_us: u64,
        ttl_ms: u64,
    ) -> Result<(), Violation> {
        let until_us = sent_us + ttl_ms * RATE_MARGIN_PER_MILLE;
        let known = self.sessions.entry(session).or_default();
        *known = (*known).max(until_us);
        match self.expired.get(&session) {
            Some(at_us) if *at_us < until_us => Err(early(session, until_us - at_us)),
            _ => Ok(()),
        }
    }

    pub(crate) fn applied(&mut self, applied: &Applied<'_>) -> Result<(), Violation> {
        for effect in applied.effects {
            if let Effect::SessionEnded { session, how: EndReason::Expired } = effect {
                self.expired.insert(*session, applied.now_us);
                let until_us = self.sessions.remove(session).unwrap_or(0);
                if applied.now_us < until_us {
                    return Err(early(*session, until_us - applied.now_us));
                }
            }
        }
        Ok(())
    }
}

fn early(session: SessionId, early_us: u64) -> Violation {
    format!("leases: session {session} expired {} ms early", early_us / 1_000)
}
