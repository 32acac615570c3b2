//! Only the living are served: no grant goes to a session that has ended.

use super::{Applied, Violation};
use holdfast_core::{Effect, Lease, SessionId};
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(crate) struct OnlyTheLiving {
    ended: BTreeSet<SessionId>,
}

impl OnlyTheLiving {
    pub(crate) fn applied(&mut self, applied: &Applied<'_>) -> Result<(), Violation> {
        for effect in applied.effects {
            match effect {
                Effect::SessionEnded { session, .. } => {
                    self.ended.insert(*session);
                }
                Effect::Granted(grant)
                    if matches!(grant.lease, Lease::Session | Lease::Unconfirmed { .. }) =>
                {
                    let ended = grant.session.filter(|session| self.ended.contains(session));
                    if let Some(session) = ended {
                        return Err(format!(
                            "only the living: token {} of ended session {session}",
                            grant.token
                        ));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}
