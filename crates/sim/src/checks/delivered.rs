//! A grant that nobody was told of ends soon: a wait without a session that was served after its
//! node's process was gone holds nothing for longer than the node's session lives.

use super::{Applied, Violation};
use holdfast_core::{Effect, Lease, Token};
use std::collections::BTreeMap;

/// A node's session lives for 10 s without it, and as long again for each new leader. The rest is
/// for slow disks.
const UNDELIVERED_MS_MAX: u64 = 15_000;

/// The locks that callers without a session take.
pub(crate) const DOOR: &str = "door-";

#[derive(Debug, Default)]
pub(crate) struct DeliveredGrants {
    undelivered: BTreeMap<Token, UndeliveredGrant>,
}

#[derive(Debug)]
struct UndeliveredGrant {
    granted: Lease,
    /// Since when nobody is there who could be told: the term, and the logical time.
    alone: Option<(u64, u64)>,
}

impl DeliveredGrants {
    pub(crate) fn delivered(&mut self, token: Token) {
        self.undelivered.remove(&token);
    }

    pub(crate) fn applied(&mut self, applied: &Applied<'_>) -> Result<(), Violation> {
        for effect in applied.effects {
            match effect {
                // One that did not wait is answered with its grant, and a client with a session of its
                // own finds it.
                Effect::Granted(grant) if grant.waited_ms > 0 && grant.lease != Lease::Session => {
                    let of_door = |name: &[u8]| name.starts_with(DOOR.as_bytes());
                    if grant.names.as_slice().iter().any(|name| of_door(name.as_bytes())) {
                        let undelivered = UndeliveredGrant { granted: grant.lease, alone: None };
                        self.undelivered.insert(grant.token, undelivered);
                    }
                }
                Effect::Ended(ended) => {
                    self.undelivered.remove(&ended.token);
                }
                _ => {}
            }
        }
        let (term, now_ms) = (applied.at.term, applied.state.now_ms());
        for (token, undelivered) in &mut self.undelivered {
            let Some(view) = applied.state.ticket_view(*token) else { continue };
            // Confirmed in the moment before the process was gone.
            let confirmed = view.lease != undelivered.granted;
            let living = view.session.is_some_and(|session| applied.living.contains(&session));
            if confirmed || living {
                undelivered.alone = None;
                continue;
            }
            let alone = undelivered.alone.filter(|(since, _)| *since == term);
            let (_, since_ms) = *undelivered.alone.insert(alone.unwrap_or((term, now_ms)));
            if now_ms - since_ms > UNDELIVERED_MS_MAX {
                return Err(format!(
                    "delivered: token {token} is held for {} ms, and its node's process is gone",
                    now_ms - since_ms
                ));
            }
        }
        Ok(())
    }
}
