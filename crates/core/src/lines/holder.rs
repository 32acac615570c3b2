//! What the owner of a ticket may do with it.

use super::history::EventKind;
use super::records::Ticket;
use super::{Lines, StepBudget};
use crate::command::{Door, Lease, Proof, Target};
use crate::containers::Slot;
use crate::effect::{Answer, Effect, EndReason};
use crate::ids::{NEVER_MS, Token};
use crate::level::REQUESTS_LEVEL;
use crate::refusal::{InvalidField, Refusal};
use crate::text::{LockName, Note};
use crate::weight::Weight;

/// How many events of a lock are searched for the end of a ticket, below the level from which on
/// each is indexed.
const ENDS_LOOKED_THROUGH: usize = 64;

impl Lines {
    /// The target ticket, if the proof shows that the request comes from its owner.
    pub(super) fn owned(&self, target: &Target, proof: &Proof) -> Result<(Slot, &Ticket), Refusal> {
        let (slot, ticket) = self.meant(target)?;
        let proven = match proof {
            Proof::Secret(secret) => {
                let session = ticket.session.and_then(|id| self.session(id));
                ticket.secret == Some(*secret) || session.is_some_and(|s| s.secret == *secret)
            }
            Proof::Label(label) => {
                ticket.secret.is_none()
                    && ticket.door != Door::Native
                    && self.label_of(ticket).as_ref() == Some(label)
            }
        };
        if !proven {
            return Err(Refusal::NotOwner);
        }
        Ok((slot, ticket))
    }

    /// The target ticket, unless it is over, or as good as over.
    pub(super) fn meant(&self, target: &Target) -> Result<(Slot, &Ticket), Refusal> {
        let Target { name, token } = target;
        let not_held = |how| Refusal::NotHeld { name: name.clone(), token: *token, how };
        let token = match token {
            Some(token) => *token,
            None => self.only_holder(name)?,
        };
        let slot = self.ticket_slot(token);
        let found = slot.and_then(|slot| Some((slot, self.data.tickets.get(slot)?)));
        let lock = self.lock_slot(name);
        let found = found.filter(|(_, ticket)| ticket.locks().any(|slot| Some(slot) == lock));
        let Some((slot, ticket)) = found else {
            return Err(not_held(self.how_ended(name, token)));
        };
        let dying = ticket.bound_session().and_then(|id| self.session(id)?.dying);
        match dying {
            Some(dying) => Err(not_held(Some(dying.how))),
            None => Ok((slot, ticket)),
        }
    }

    fn only_holder(&self, name: &LockName) -> Result<Token, Refusal> {
        let lock = self.lock_slot(name).and_then(|slot| self.data.locks.get(slot));
        match lock.map(|lock| (lock.holders, lock.head())) {
            Some((1, Some(holder))) => Ok(holder),
            None | Some((0, _)) => {
                Err(Refusal::NotHeld { name: name.clone(), token: None, how: None })
            }
            Some(_) => Err(Refusal::NameTheToken(name.clone())),
        }
    }

    /// How a ticket ended, as far as the history knows.
    fn how_ended(&self, name: &LockName, token: Token) -> Option<EndReason> {
        let (index, history) = (&self.index.history, &self.data.history);
        if self.level >= REQUESTS_LEVEL {
            return index.how_ended(history, name, token);
        }
        let mut events = index.events(history, name).take(ENDS_LOOKED_THROUGH);
        events.find_map(|event| event.how_ended().filter(|_| event.token == token))
    }

    fn owned_and_held(&self, target: &Target, proof: &Proof) -> Result<(Slot, &Ticket), Refusal> {
        let (slot, ticket) = self.owned(target, proof)?;
        if ticket.held { Ok((slot, ticket)) } else { Err(Refusal::NotYetServed(ticket.number)) }
    }

    pub(crate) fn release(
        &mut self,
        target: &Target,
        proof: &Proof,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        let token = match self.owned_and_held(target, proof) {
            Ok((_, ticket)) => ticket.number,
            Err(Refusal::NotHeld {
                token: Some(token), how: Some(EndReason::Released), ..
            }) => {
                return Ok(Answer::Released(token));
            }
            Err(refusal) => return Err(refusal),
        };
        self.end_ticket(
            token,
            EndReason::Released,
            None,
            &mut StepBudget(self.limits.steps_max),
            effects,
        );
        Ok(Answer::Released(token))
    }

    pub(crate) fn cancel(
        &mut self,
        target: &Target,
        proof: &Proof,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        let (_, ticket) = self.owned(target, proof)?;
        let token = ticket.number;
        if ticket.held {
            return Err(Refusal::AlreadyServed(token));
        }
        self.end_ticket(
            token,
            EndReason::Cancelled,
            None,
            &mut StepBudget(self.limits.steps_max),
            effects,
        );
        Ok(Answer::Cancelled(token))
    }

    pub(crate) fn renew(
        &mut self,
        target: &Target,
        proof: &Proof,
        ttl_ms: u64,
    ) -> Result<Answer, Refusal> {
        if ttl_ms == 0 {
            return Err(Refusal::BadRequest(InvalidField::NoTtl));
        }
        self.set_lease(target, proof, Lease::Deadline { ttl_ms })
    }

    pub(crate) fn persist(&mut self, target: &Target, proof: &Proof) -> Result<Answer, Refusal> {
        self.set_lease(target, proof, Lease::Permanent)
    }

    fn set_lease(
        &mut self,
        target: &Target,
        proof: &Proof,
        lease: Lease,
    ) -> Result<Answer, Refusal> {
        let (slot, ticket) = self.owned_and_held(target, proof)?;
        let token = ticket.number;
        if ticket.lease == Lease::Session {
            return Err(Refusal::SessionLease(token));
        }
        let due_ms = self.change_lease(slot, lease);
        Ok(Answer::Renewed { token, due_ms })
    }

    /// Gives a held ticket another lease; returns when that ends, `None` for never.
    pub(super) fn change_lease(&mut self, slot: Slot, lease: Lease) -> Option<u64> {
        let due_ms = match lease {
            Lease::Deadline { ttl_ms } | Lease::Unconfirmed { ttl_ms } => {
                self.data.clock.now_ms.saturating_add(ttl_ms)
            }
            Lease::Session | Lease::Permanent => NEVER_MS,
        };
        let ticket = self.data.tickets.get_mut(slot)?;
        self.index.sets.remove_ticket(ticket);
        (ticket.lease, ticket.due_ms) = (lease, due_ms);
        self.index.sets.add_ticket(ticket);
        ticket.due()
    }

    pub(crate) fn note(
        &mut self,
        target: &Target,
        proof: &Proof,
        note: Option<Note>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        let (slot, ticket) = self.owned(target, proof)?;
        self.check_bytes(Weight::texts(note.as_ref().map_or(0, |note| note.as_bytes().len())))?;
        let (token, names, held) = (ticket.number, self.names_of(ticket), ticket.held);
        self.change_ticket(slot, |ticket| {
            if note.is_some() || ticket.note().is_some() {
                ticket.extra_mut().note = note.clone();
            }
        });
        if held {
            effects.push(Effect::Noted { token, names, note });
        }
        Ok(Answer::Noted(token))
    }

    pub(crate) fn recovered(
        &mut self,
        target: &Target,
        proof: &Proof,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        let (_, ticket) = self.owned_and_held(target, proof)?;
        let (token, label) = (ticket.number, self.label_of(ticket));
        let name = target.name.clone();
        let death = self.lock_slot(&name).and_then(|slot| self.unmark_dead(slot));
        if let Some(death) = &death {
            self.record(name.clone(), token, label, EventKind::Recovered { death: death.token });
            effects.push(Effect::Recovered { name, token, death: death.clone() });
        }
        Ok(Answer::Recovered(death))
    }
}
