//! A grant that nobody was told of ends soon: a wait without a session that was served after its
//! node's process was gone holds nothing for longer than the node's session lives.

use super::{Applied, Violation};
use holdfast_core::{Effect, Lease, Token};
use std::collections::BTreeMap;

/// A node's session lives for 10 s without it, and as long again for each new leader. The rest is
/// for slow disks.
const UNHEARD_MS_MAX: u64 = 15_000;

/// The locks that callers without a session take.
pub(crate) const DOOR: &str = "door-";

#[derive(Debug, Default)]
pub(crate) struct Heard {
    unheard: BTreeMap<Token, Unheard>,
}

#[derive(Debug)]
struct Unheard {
    granted: Lease,
    /// Since when nobody is there who could be told: the term, and the logical time.
    alone: Option<(u64, u64)>,
}

impl Heard {
    pub(crate) fn heard(&mut self, token: Token) {
        self.unheard.remove(&token);
    }

    pub(crate) fn applied(&mut self, applied: &Applied<'_>) -> Result<(), Violation> {
        for effect in applied.effects {
            match effect {
                // One that did not wait is answered with its grant.
                Effect::Granted(grant) if grant.waited_ms > 0 => {
                    let of_door = |name: &[u8]| name.starts_with(DOOR.as_bytes());
                    if grant.names.as_slice().iter().any(|name| of_door(name.as_bytes())) {
                        let unheard = Unheard { granted: grant.lease, alone: None };
                        self.unheard.insert(grant.token, unheard);
                    }
                }
                Effect::Ended(ended) => {
                    self.unheard.remove(&ended.token);
                }
                _ => {}
            }
        }
        let (term, now_ms) = (applied.at.term, applied.state.now_ms());
        for (token, unheard) in &mut self.unheard {
            let Some(view) = applied.state.ticket_view(*token) else { continue };
            // Confirmed in the moment before the process was gone.
            let confirmed = view.lease != unheard.granted;
            let living = view.session.is_some_and(|session| applied.living.contains(&session));
            if confirmed || living {
                unheard.alone = None;
                continue;
            }
            let alone = unheard.alone.filter(|(since, _)| *since == term);
            let (_, since_ms) = *unheard.alone.insert(alone.unwrap_or((term, now_ms)));
            if now_ms - since_ms > UNHEARD_MS_MAX {
                return Err(format!(
                    "heard: token {token} is held for {} ms, and its node's process is gone",
                    now_ms - since_ms
                ));
            }
        }
        Ok(())
    }
}
