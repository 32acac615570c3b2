//! What others may do to a holder: ask it to release, or break the lock.

use super::history::EventKind;
use super::records::Revocation;
use super::{Lines, StepBudget};
use crate::command::{Revoke, Target};
use crate::effect::{Answer, Effect, EndReason, Forced};
use crate::ids::Token;
use crate::refusal::Refusal;
use crate::text::{Label, LockName, Reason};
use crate::weight::Weight;
use std::sync::Arc;

impl Lines {
    pub(crate) fn revoke(
        &mut self,
        revoke: Revoke,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        let Revoke { name, token, by, reason, within_ms, force } = revoke;
        let tokens = self.tickets_meant(&name, token)?;
        if let Some(waiting) =
            tokens.iter().find(|token| self.ticket(**token).is_some_and(|t| !t.held))
        {
            return Err(Refusal::NotYetServed(*waiting));
        }
        let bytes = by.as_bytes().len().saturating_add(reason.as_bytes().len());
        self.check_bytes(Weight::texts(bytes.saturating_mul(tokens.len())))?;
        let until_ms = self.data.clock.now_ms.saturating_add(within_ms);
        for token in &tokens {
            let revocation = Revocation { by: by.clone(), reason: reason.clone(), until_ms, force };
            self.ask(*token, &name, revocation, effects);
        }
        Ok(Answer::RevocationAsked(tokens.len()))
    }

    fn ask(&mut self, token: Token, name: &LockName, ask: Revocation, effects: &mut Vec<Effect>) {
        let Some(slot) = self.ticket_slot(token) else { return };
        let Some(ticket) = self.data.tickets.get(slot) else { return };
        let (session, label) = (ticket.session, self.label_of(ticket));
        let before = ticket.revocation().map(|before| (before.until_ms, before.force));
        // A forced revocation is not lifted by a later request without force, or with a later
        // deadline.
        let stays = before
            .is_some_and(|(until_ms, force)| force && (!ask.force || until_ms <= ask.until_ms));
        if let Some((until_ms, _)) = before.filter(|_| !stays) {
            self.index.sets.revocations.remove(&(until_ms, token));
        }
        let (by, reason) = (ask.by.clone(), ask.reason.clone());
        self.record(name.clone(), token, label, EventKind::RevocationAsked { by, reason });
        effects.push(Effect::RevocationAsked {
            token,
            session,
            name: name.clone(),
            by: ask.by.clone(),
            reason: ask.reason.clone(),
            until_ms: ask.until_ms,
            force: ask.force,
        });
        if !stays {
            self.index.sets.revocations.insert((ask.until_ms, token));
            self.change_ticket(slot, |ticket| ticket.extra_mut().revocation = Some(ask));
        }
    }

    pub(crate) fn force(
        &mut self,
        name: &LockName,
        token: Option<Token>,
        by: Label,
        reason: Reason,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        let tokens = self.tickets_meant(name, token)?;
        let forced = Arc::new(Forced { by, reason });
        let mut steps = StepBudget(self.limits.steps_max);
        for token in &tokens {
            self.end_ticket(*token, EndReason::Forced, Some(forced.clone()), &mut steps, effects);
        }
        Ok(Answer::Forced(tokens.len()))
    }

    /// The given ticket, or all holders of the name.
    fn tickets_meant(&self, name: &LockName, token: Option<Token>) -> Result<Vec<Token>, Refusal> {
        if token.is_some() {
            let target = Target { name: name.clone(), token };
            return self.meant(&target).map(|(_, ticket)| vec![ticket.number]);
        }
        let slot = self.lock_slot(name);
        let lock = slot.and_then(|slot| Some((slot, self.data.locks.get(slot)?)));
        let Some((slot, lock)) = lock.filter(|(_, lock)| lock.holders > 0) else {
            return Err(Refusal::NotHeld { name: name.clone(), token: None, how: None });
        };
        if lock.holders as usize > self.limits.holders_walked_max {
            return Err(Refusal::NameTheToken(name.clone()));
        }
        Ok(self.index.sets.lines.holders(slot, lock).collect())
    }
}
