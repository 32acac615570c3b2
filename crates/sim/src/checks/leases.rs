//! A lease never ends early: nobody is served while a client may still believe that it holds the
//! lock, and a session does not expire within its TTL of an acknowledged heartbeat.

use super::{Applied, Violation};
use holdfast_core::{Effect, How, LockName, Mode, SessionId, Token};
use std::collections::BTreeMap;

/// Clock rates may differ by one in a hundred: so much less of a TTL may pass.
const RATE_MARGIN_PER_MILLE: u64 = 980;

/// A client that believes to hold a lock.
#[derive(Debug, Clone)]
pub(crate) struct Belief {
    pub(crate) client: usize,
    pub(crate) name: LockName,
    pub(crate) token: Token,
    pub(crate) mode: Mode,
}

#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// By session: no expiry before this.
    sessions: BTreeMap<SessionId, u64>,
}

impl Leases {
    pub(crate) fn beat(&mut self, session: SessionId, sent_us: u64, ttl_ms: u64) {
        let until_us = sent_us + ttl_ms * RATE_MARGIN_PER_MILLE;
        let known = self.sessions.entry(session).or_default();
        *known = (*known).max(until_us);
    }

    pub(crate) fn applied(
        &mut self,
        applied: &Applied<'_>,
        beliefs: &[Belief],
    ) -> Result<(), Violation> {
        for effect in applied.effects {
            match effect {
                Effect::Granted(grant) => {
                    for name in grant.names.as_slice() {
                        let conflicts = |belief: &&Belief| {
                            belief.name == *name
                                && belief.token != grant.token
                                && (belief.mode == Mode::Exclusive || grant.mode == Mode::Exclusive)
                        };
                        if let Some(belief) = beliefs.iter().find(conflicts) {
                            return Err(format!(
                                "leases: {name} was granted as {} while client {} believes to hold it as {}",
                                grant.token, belief.client, belief.token
                            ));
                        }
                    }
                }
                Effect::SessionEnded { session, how: How::Expired } => {
                    let until_us = self.sessions.remove(session).unwrap_or(0);
                    if applied.now_us < until_us {
                        let early_ms = (until_us - applied.now_us) / 1_000;
                        return Err(format!(
                            "leases: session {session} expired {early_ms} ms early"
                        ));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}
