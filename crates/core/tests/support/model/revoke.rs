//! Asking a holder to release, and breaking a lock.

use super::Model;
use super::records::Revocation;
use holdfast_core::{
    Answer, Effect, EndReason, EventKind, Forced, Label, LockName, Reason, Refusal, Revoke, Token,
};

impl Model {
    /// The numbers of all holders, for a command by name alone.
    fn all_holders(&self, name: &LockName) -> Result<Vec<Token>, Refusal> {
        let holders: Vec<Token> = self.holders(name).iter().map(|holder| holder.token).collect();
        if holders.is_empty() {
            return Err(Refusal::NotHeld { name: name.clone(), token: None, how: None });
        }
        if holders.len() > self.limits.holders_walked_max {
            return Err(Refusal::NameTheToken(name.clone()));
        }
        Ok(holders)
    }

    pub(super) fn revoke(&mut self, revoke: Revoke) -> Result<Answer, Refusal> {
        let Revoke { name, token, by, reason, within_ms, force } = revoke;
        let tokens = match token {
            None => self.all_holders(&name)?,
            Some(token) if self.named(&name, token)?.held => vec![token],
            Some(token) => return Err(Refusal::NotYetServed(token)),
        };
        let until_ms = self.now_ms.saturating_add(within_ms);
        for token in &tokens {
            let by_whom = Forced { by: by.clone(), reason: reason.clone() };
            let Some(ticket) = self.ticket_mut(*token) else { continue };
            // A forced revocation is not lifted by a later request without force, or with a later
            // deadline.
            let stays = ticket
                .revocation
                .as_ref()
                .is_some_and(|before| before.force && (!force || before.until_ms <= until_ms));
            if !stays {
                ticket.revocation = Some(Revocation { until_ms, by: by_whom, force });
            }
            let ticket = ticket.clone();
            let what = EventKind::RevocationAsked { by: by.clone(), reason: reason.clone() };
            self.happened_to(&name, &ticket, what);
            self.effects.push(Effect::RevocationAsked {
                token: *token,
                session: ticket.session,
                name: name.clone(),
                by: by.clone(),
                reason: reason.clone(),
                until_ms,
                force,
            });
        }
        Ok(Answer::RevocationAsked(tokens.len()))
    }

    pub(super) fn force(
        &mut self,
        name: &LockName,
        token: Option<Token>,
        by: Label,
        reason: Reason,
    ) -> Result<Answer, Refusal> {
        let tokens = match token {
            None => self.all_holders(name)?,
            Some(token) => vec![self.named(name, token)?.token],
        };
        for token in &tokens {
            let forced = Forced { by: by.clone(), reason: reason.clone() };
            self.end(*token, EndReason::Forced, Some(&forced));
        }
        Ok(Answer::Forced(tokens.len()))
    }
}
