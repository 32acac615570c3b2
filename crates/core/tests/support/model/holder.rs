//! What the owner of a ticket may do with it.

use super::line::later;
use super::{Model, Ticket};
use holdfast_core::{
    Answer, Door, Effect, EndReason, EventKind, InvalidField, Lease, LockName, Note, Proof,
    Refusal, Target, Token,
};

impl Model {
    /// How a holder of this name ended, if its event is still known.
    fn known_end(&self, name: &LockName, token: Token) -> Option<EndReason> {
        let known = self.events.iter().skip(self.events_forgotten);
        let mut of_ticket = known.rev().filter(|event| event.name == *name && event.token == token);
        of_ticket.find_map(|event| match event.what {
            EventKind::Ended(how) => Some(how),
            EventKind::Broken(_) => Some(EndReason::Forced),
            _ => None,
        })
    }

    /// The ticket with this number, if it is in this line.
    pub(super) fn named(&self, name: &LockName, token: Token) -> Result<&Ticket, Refusal> {
        let how = match self.ticket(token).filter(|ticket| ticket.is_in_line(name)) {
            None => self.known_end(name, token),
            Some(ticket) => match ticket.bound_to().and_then(|id| self.session(id)?.ended) {
                None => return Ok(ticket),
                Some(how) => Some(how),
            },
        };
        Err(Refusal::NotHeld { name: name.clone(), token: Some(token), how })
    }

    /// The target ticket, if the proof is right.
    fn owned(&self, target: &Target, proof: &Proof) -> Result<Ticket, Refusal> {
        let ticket = match target.token {
            Some(token) => self.named(&target.name, token)?,
            None => match self.holders(&target.name).as_slice() {
                [holder] => self.named(&target.name, holder.token)?,
                [] => {
                    let name = target.name.clone();
                    return Err(Refusal::NotHeld { name, token: None, how: None });
                }
                _ => return Err(Refusal::NameTheToken(target.name.clone())),
            },
        };
        if self.proves(ticket, proof) { Ok(ticket.clone()) } else { Err(Refusal::NotOwner) }
    }

    fn proves(&self, ticket: &Ticket, proof: &Proof) -> bool {
        let mut accepted: Vec<Proof> = ticket.secret.map(Proof::Secret).into_iter().collect();
        if let Some(session) = ticket.session.and_then(|id| self.session(id)) {
            accepted.push(Proof::Secret(session.secret));
        }
        if ticket.secret.is_none() && ticket.door != Door::Native {
            accepted.extend(self.label_of(ticket).map(Proof::Label));
        }
        accepted.contains(proof)
    }

    /// The target ticket, if it is held and the proof is right.
    pub(super) fn held(&self, target: &Target, proof: &Proof) -> Result<Ticket, Refusal> {
        let ticket = self.owned(target, proof)?;
        if ticket.held { Ok(ticket) } else { Err(Refusal::NotYetServed(ticket.token)) }
    }

    pub(super) fn release(&mut self, target: &Target, proof: &Proof) -> Result<Answer, Refusal> {
        let ticket = self.held(target, proof);
        // A repeated release succeeds.
        if let Err(Refusal::NotHeld {
            token: Some(token), how: Some(EndReason::Released), ..
        }) = ticket
        {
            return Ok(Answer::Released(token));
        }
        let token = ticket?.token;
        self.end(token, EndReason::Released, None);
        Ok(Answer::Released(token))
    }

    pub(super) fn cancel(&mut self, target: &Target, proof: &Proof) -> Result<Answer, Refusal> {
        let Ticket { token, held, .. } = self.owned(target, proof)?;
        if held {
            return Err(Refusal::AlreadyServed(token));
        }
        self.end(token, EndReason::Cancelled, None);
        Ok(Answer::Cancelled(token))
    }

    pub(super) fn renew(
        &mut self,
        target: &Target,
        proof: &Proof,
        ttl_ms: u64,
    ) -> Result<Answer, Refusal> {
        if ttl_ms == 0 {
            return Err(Refusal::BadRequest(InvalidField::NoTtl));
        }
        let due_ms = later(self.now_ms, ttl_ms);
        self.change_lease(target, proof, Lease::Deadline { ttl_ms }, due_ms)
    }

    pub(super) fn persist(&mut self, target: &Target, proof: &Proof) -> Result<Answer, Refusal> {
        self.change_lease(target, proof, Lease::Permanent, None)
    }

    fn change_lease(
        &mut self,
        target: &Target,
        proof: &Proof,
        lease: Lease,
        due_ms: Option<u64>,
    ) -> Result<Answer, Refusal> {
        let ticket = self.held(target, proof)?;
        let token = ticket.token;
        if ticket.lease == Lease::Session {
            return Err(Refusal::SessionLease(token));
        }
        if let Some(ticket) = self.ticket_mut(token) {
            ticket.lease = lease;
            ticket.due_ms = due_ms;
        }
        Ok(Answer::Renewed { token, due_ms })
    }

    pub(super) fn note(
        &mut self,
        target: &Target,
        proof: &Proof,
        note: Option<Note>,
    ) -> Result<Answer, Refusal> {
        let ticket = self.owned(target, proof)?;
        let token = ticket.token;
        if let Some(ticket) = self.ticket_mut(token) {
            ticket.note = note.clone();
        }
        if ticket.held {
            self.effects.push(Effect::Noted { token, names: ticket.shown_names(), note });
        }
        Ok(Answer::Noted(token))
    }

    pub(super) fn recovered(&mut self, target: &Target, proof: &Proof) -> Result<Answer, Refusal> {
        let ticket = self.held(target, proof)?;
        let Some(death) = self.past_mut(&target.name).death.take() else {
            return Ok(Answer::Recovered(None));
        };
        let death = death.ending;
        self.happened_to(&target.name, &ticket, EventKind::Recovered { death: death.token });
        let (name, token) = (target.name.clone(), ticket.token);
        self.effects.push(Effect::Recovered { name, token, death: death.clone() });
        Ok(Answer::Recovered(Some(death)))
    }
}
