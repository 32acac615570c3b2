//! One effect and a certain outcome for a request, however often it is sent.

use super::State;
use super::records::{Alone, Outcome, Session, Ticket};
use crate::command::{Command, Lease, Mode, Request};
use crate::effect::{Answer, Effect, Grant, How, Names, Standing};
use crate::ids::{RequestId, Token};
use crate::mistakes::Mistake;
use crate::refusal::{Bad, Bound, Refusal};
use crate::store::Slot;
use crate::text::RequestKey;
use std::sync::Arc;

impl State {
    /// Runs a command that may be a retry: what was done once is told as it stands now.
    pub(super) fn decide_once(
        &mut self,
        request: Request,
        command: Command,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        self.check_takes_request(&request, &command)?;
        if let Some(outcome) = self.recall(&request)?
            && !self.mistakes.makes(Mistake::ForgetRequestId)
        {
            return self.tell(&outcome);
        }
        self.check_memory(&request)?;
        let result = self.decide(command, Some(&request), effects);
        let outcome = match &result {
            Ok(Answer::Standing(standing)) => Outcome::Ticket(standing.token()),
            Ok(answer) => Outcome::Answered(Box::new(answer.clone())),
            Err(refusal) => Outcome::Refused(Box::new(refusal.clone())),
        };
        self.remember(&request, outcome);
        result
    }

    /// What became of a request; one that was not seen by now never will be.
    pub(super) fn outcome(&mut self, request: &Request) -> Result<Answer, Refusal> {
        if let Some(outcome) = self.recall(request)? {
            return match outcome {
                Outcome::Barred => Ok(Answer::Barred),
                outcome => self.tell(&outcome),
            };
        }
        self.check_memory(request)?;
        self.remember(request, Outcome::Barred);
        Ok(Answer::Barred)
    }

    fn tell(&self, outcome: &Outcome) -> Result<Answer, Refusal> {
        match outcome {
            Outcome::Ticket(token) => Ok(Answer::Standing(self.standing(*token))),
            Outcome::Over(token, _) if self.mistakes.makes(Mistake::ReplayGrant) => {
                Ok(Answer::Standing(Standing::Held(stale_grant(*token))))
            }
            Outcome::Over(token, how) => {
                Ok(Answer::Standing(Standing::Over { token: *token, how: *how }))
            }
            Outcome::Answered(answer) => Ok((**answer).clone()),
            Outcome::Refused(refusal) => Err((**refusal).clone()),
            Outcome::Barred => Err(Refusal::Barred),
        }
    }

    /// Commands that the leader or a node makes carry no request id, and without a session only
    /// a ticket can be found again.
    fn check_takes_request(&self, request: &Request, command: &Command) -> Result<(), Refusal> {
        let bad = match command {
            Command::Tick(_)
            | Command::OpenSession(_)
            | Command::CloseSession(_)
            | Command::ExpireSession { .. }
            | Command::Outcome(_)
            | Command::Transact(_) => Bad::NoRequestId,
            Command::Acquire(_) | Command::Upgrade { .. } => return Ok(()),
            _ if matches!(request, Request::Alone(_)) => Bad::RequestNeedsSession,
            _ => return Ok(()),
        };
        Err(Refusal::BadRequest(bad))
    }

    /// What is remembered of a request. Forgets what its session no longer needs.
    fn recall(&mut self, request: &Request) -> Result<Option<Outcome>, Refusal> {
        match request {
            Request::InSession { session, id, lowest } => {
                let slot = self.check_session(session)?;
                if id < lowest {
                    return Err(Refusal::BadRequest(Bad::RequestBelowLowest));
                }
                let gone = Refusal::NoSession(session.id);
                let session = self.data.sessions.get_mut(slot).ok_or(gone)?;
                session.forget_below(*lowest);
                if *id < session.lowest {
                    return Err(Refusal::TooOldToKnow(*id));
                }
                Ok(session.outcome_mut(*id).cloned())
            }
            Request::Alone(key) => {
                let slot = self.alone_slot(key);
                Ok(slot
                    .and_then(|slot| self.data.alone.get(slot))
                    .map(|alone| alone.outcome.clone()))
            }
        }
    }

    fn alone_slot(&self, key: &RequestKey) -> Option<Slot> {
        self.index.alone.get(&self.data.alone, key)
    }

    fn check_memory(&self, request: &Request) -> Result<(), Refusal> {
        match request {
            Request::InSession { session, .. } => {
                let known = self.session(session.id).map_or(0, |session| session.requests.len());
                if known >= self.limits.requests_per_session_max {
                    return Err(Refusal::Full(Bound::Requests));
                }
            }
            Request::Alone(_) => {
                if self.data.alone.len() >= self.limits.requests_alone_max {
                    return Err(Refusal::Full(Bound::RequestsAlone));
                }
            }
        }
        Ok(())
    }

    fn remember(&mut self, request: &Request, outcome: Outcome) {
        match request {
            Request::InSession { session, id, .. } => {
                let slot = self.session_slot(session.id);
                if let Some(session) = slot.and_then(|slot| self.data.sessions.get_mut(slot)) {
                    session.remember(*id, outcome);
                }
            }
            Request::Alone(key) => {
                let over = !matches!(outcome, Outcome::Ticket(_));
                let slot = self.alone_slot(key).unwrap_or_else(|| {
                    let alone = Alone { key: key.clone(), outcome: outcome.clone(), forget: None };
                    let slot = self.data.alone.insert(alone);
                    self.index.alone.insert(&self.data.alone, slot);
                    slot
                });
                self.set_alone(slot, outcome, over);
            }
        }
    }

    /// The clock of forgetting starts when a request's ticket is over.
    fn set_alone(&mut self, slot: Slot, outcome: Outcome, over: bool) {
        let forget_ms = self.data.clock.now_ms.saturating_add(self.limits.request_alone_kept_ms);
        let forget = over.then(|| (forget_ms, self.next_in_sequence()));
        let Some(alone) = self.data.alone.get_mut(slot) else { return };
        alone.outcome = outcome;
        if let Some(before) = std::mem::replace(&mut alone.forget, forget) {
            self.index.sets.forget.remove(&before);
        }
        if let Some(forget) = forget {
            self.index.sets.forget.insert(forget, slot);
        }
    }

    pub(super) fn forget_alone(&mut self, slot: Slot) {
        self.index.alone.remove(&self.data.alone, slot);
        if let Some(forget) = self.data.alone.remove(slot).and_then(|alone| alone.forget) {
            self.index.sets.forget.remove(&forget);
        }
    }

    /// Tells the request that drew a ticket how the ticket ended.
    pub(super) fn settle_request(&mut self, ticket: &Ticket, how: How) {
        let over = Outcome::Over(ticket.number, how);
        if let Some(key) = ticket.request_key() {
            if let Some(slot) = self.alone_slot(key) {
                self.set_alone(slot, over, true);
            }
        } else if let Some((session, id)) = ticket.session.zip(ticket.request) {
            let slot = self.session_slot(session);
            let session = slot.and_then(|slot| self.data.sessions.get_mut(slot));
            if let Some(known) = session.and_then(|session| session.outcome_mut(id)) {
                *known = over;
            }
        }
    }
}

impl Session {
    fn forget_below(&mut self, lowest: RequestId) {
        if lowest > self.lowest {
            self.lowest = lowest;
            let kept = self.requests.partition_point(|(id, _)| *id < lowest);
            self.requests.drain(..kept);
        }
    }

    fn outcome_mut(&mut self, id: RequestId) -> Option<&mut Outcome> {
        let at = self.requests.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.requests.get_mut(at).map(|(_, outcome)| outcome)
    }

    fn remember(&mut self, id: RequestId, outcome: Outcome) {
        match self.requests.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => {
                if let Some(known) = self.requests.get_mut(at) {
                    known.1 = outcome;
                }
            }
            Err(at) => self.requests.insert(at, (id, outcome)),
        }
    }
}

/// What `ReplayGrant` answers.
fn stale_grant(token: Token) -> Grant {
    Grant {
        token,
        names: Names::Many(Arc::from([])),
        mode: Mode::Exclusive,
        lease: Lease::Permanent,
        session: None,
        label: None,
        note: None,
        secret: None,
        waited_ms: 0,
        after: None,
    }
}
