//! One effect and a definite outcome for a request, however often it is sent.

use super::Lines;
use super::fingerprint::Fingerprint;
use super::records::{Alone, RememberedRequest, RequestOutcome, Session, Ticket};
use crate::command::{Command, RequestRef};
use crate::containers::Slot;
use crate::effect::{Answer, EndReason, TicketStatus};
use crate::ids::RequestId;
use crate::level::REQUESTS_LEVEL;
use crate::refusal::{Bound, InvalidField, Refusal};
use crate::text::RequestKey;
use crate::weight::Weight;

/// What is known about a request before it runs.
pub(crate) enum Recalled {
    /// It ran before: its result, as of now.
    Ran(Result<Answer, Refusal>),
    /// It is new: its fingerprint, `None` below the level that has them.
    New(Option<Fingerprint>),
}

impl Lines {
    /// Recognises a retry, and answers it with the current state of what the first attempt did.
    /// Refuses requests that must not run, or for which there is no room to remember them.
    pub(crate) fn recall_request(
        &mut self,
        request: &RequestRef,
        command: &Command,
    ) -> Result<Recalled, Refusal> {
        self.check_takes_request(request, command)?;
        let knows = self.level >= REQUESTS_LEVEL;
        let fingerprint = if knows { Fingerprint::of(command) } else { None };
        if let Some((outcome, asked)) = self.recall(request)? {
            if asked.is_some() && asked != fingerprint {
                return Err(Refusal::OtherRequest);
            }
            return Ok(Recalled::Ran(self.answer_of(&outcome)));
        }
        self.check_memory(request, takes_memory(command))?;
        Ok(Recalled::New(fingerprint))
    }

    /// Remembers the result of a new request.
    pub(crate) fn remember_request(
        &mut self,
        request: &RequestRef,
        result: &Result<Answer, Refusal>,
        fingerprint: Option<Fingerprint>,
    ) {
        let outcome = match result {
            Ok(Answer::TicketStatus(status)) => RequestOutcome::Ticket(status.token()),
            Ok(answer) => RequestOutcome::Answered(Box::new(answer.clone())),
            Err(refusal) => RequestOutcome::Refused(Box::new(refusal.clone())),
        };
        self.remember(request, outcome, fingerprint);
    }

    /// What happened to a request. One that has not been seen yet is barred: in a session for as
    /// long as the session lives, a random id for as long as any such id is remembered. No copy of
    /// it still in flight takes that long.
    pub(crate) fn outcome(&mut self, request: &RequestRef) -> Result<Answer, Refusal> {
        if let Some((outcome, _)) = self.recall(request)? {
            return match outcome {
                RequestOutcome::Barred => Ok(Answer::Barred),
                outcome => self.answer_of(&outcome),
            };
        }
        self.check_memory(request, false)?;
        self.remember(request, RequestOutcome::Barred, None);
        Ok(Answer::Barred)
    }

    fn answer_of(&self, outcome: &RequestOutcome) -> Result<Answer, Refusal> {
        match outcome {
            RequestOutcome::Ticket(token) => Ok(Answer::TicketStatus(self.ticket_status(*token))),
            RequestOutcome::Over(token, how) => {
                Ok(Answer::TicketStatus(TicketStatus::Over { token: *token, how: *how }))
            }
            RequestOutcome::Answered(answer) => Ok((**answer).clone()),
            RequestOutcome::Refused(refusal) => Err((**refusal).clone()),
            RequestOutcome::Barred => Err(Refusal::Barred),
        }
    }

    /// Commands made by the leader or a node have no request id, and without a session only a
    /// ticket can be found again.
    fn check_takes_request(&self, request: &RequestRef, command: &Command) -> Result<(), Refusal> {
        let bad = match command {
            Command::Tick(_)
            | Command::OpenSession(_)
            | Command::CloseSession(_)
            | Command::ExpireSession { .. }
            | Command::Outcome(_)
            | Command::Transact(_)
            | Command::Tree(_)
            | Command::Operate { .. } => InvalidField::NoRequestId,
            Command::Acquire(_) | Command::Upgrade { .. } => return Ok(()),
            _ if matches!(request, RequestRef::Alone(_)) => InvalidField::RequestNeedsSession,
            _ => return Ok(()),
        };
        Err(Refusal::BadRequest(bad))
    }

    /// What is remembered about a request, and its fingerprint. Forgets what its session no longer
    /// needs.
    fn recall(
        &mut self,
        request: &RequestRef,
    ) -> Result<Option<(RequestOutcome, Option<Fingerprint>)>, Refusal> {
        match request {
            RequestRef::InSession { session: session_ref, id, lowest } => {
                let slot = self.check_session(session_ref)?;
                if id < lowest {
                    return Err(Refusal::BadRequest(InvalidField::RequestBelowLowest));
                }
                self.change_session(slot, |session| session.forget_below(*lowest));
                let session = self.data.sessions.get(slot);
                let session = session.ok_or(Refusal::NoSession(session_ref.id))?;
                if *id < session.lowest {
                    return Err(Refusal::TooOldToKnow(*id));
                }
                let known = session.request(*id);
                Ok(known.map(|known| (known.outcome.clone(), known.fingerprint)))
            }
            RequestRef::Alone(key) => {
                let slot = self.alone_slot(key);
                let known = slot.and_then(|slot| self.data.alone.get(slot));
                Ok(known.map(|alone| (alone.outcome.clone(), alone.fingerprint)))
            }
        }
    }

    fn alone_slot(&self, key: &RequestKey) -> Option<Slot> {
        self.index.alone.get(&self.data.alone, key)
    }

    /// Whether there is room to remember one more request. How long its answer will be is not known
    /// yet: the last one may exceed the bounds.
    fn check_memory(&self, request: &RequestRef, takes_memory: bool) -> Result<(), Refusal> {
        match request {
            RequestRef::InSession { session, .. } => {
                let session = self.session(session.id);
                let known = session.map_or(0, |session| session.requests.len());
                let bytes = session.map_or(0, |session| session.memory_bytes);
                let bytes = self.counted(Weight::rest(bytes));
                if known >= self.limits.requests_per_session_max
                    || bytes >= self.limits.session_memory_bytes_max
                {
                    return Err(Refusal::Full(Bound::Requests));
                }
            }
            RequestRef::Alone(_) => {
                if self.data.alone.len() >= self.limits.requests_alone_max {
                    return Err(Refusal::Full(Bound::RequestsAlone));
                }
            }
        }
        if self.level < REQUESTS_LEVEL {
            return Ok(());
        }
        let reserve = if takes_memory { 0 } else { self.limits.bytes_reserve };
        let max = self.limits.bytes_max.saturating_add(reserve);
        self.check_bytes_below(Weight::rest(RequestOutcome::Barred.bytes()), max)
    }

    fn remember(
        &mut self,
        request: &RequestRef,
        outcome: RequestOutcome,
        fingerprint: Option<Fingerprint>,
    ) {
        match request {
            RequestRef::InSession { session, id, .. } => {
                let Some(slot) = self.session_slot(session.id) else { return };
                let request = RememberedRequest { id: *id, outcome, fingerprint };
                self.change_session(slot, |session| session.remember(request));
            }
            RequestRef::Alone(key) => {
                let over = !matches!(outcome, RequestOutcome::Ticket(_));
                let slot = self.alone_slot(key).unwrap_or_else(|| {
                    let (key, outcome) = (key.clone(), outcome.clone());
                    let alone = Alone { key, outcome, forget: None, fingerprint };
                    self.weigh_change(Weight::NONE, alone.weight());
                    let slot = self.data.alone.insert(alone);
                    self.index.alone.insert(&self.data.alone, slot);
                    slot
                });
                self.set_alone(slot, outcome, over);
            }
        }
    }

    /// The time until it is forgotten starts when the request's ticket is over.
    fn set_alone(&mut self, slot: Slot, outcome: RequestOutcome, over: bool) {
        let forget_ms = self.data.clock.now_ms.saturating_add(self.limits.request_alone_kept_ms);
        let forget = over.then(|| (forget_ms, self.next_in_sequence()));
        let Some(alone) = self.data.alone.get_mut(slot) else { return };
        let weighed = alone.weight();
        alone.outcome = outcome;
        let weight = alone.weight();
        if let Some(before) = std::mem::replace(&mut alone.forget, forget) {
            self.index.sets.forget.remove(&before);
        }
        if let Some(forget) = forget {
            self.index.sets.forget.insert(forget, slot);
        }
        self.weigh_change(weighed, weight);
    }

    pub(super) fn forget_alone(&mut self, slot: Slot) {
        self.index.alone.remove(&self.data.alone, slot);
        let Some(alone) = self.data.alone.remove(slot) else { return };
        self.weigh_change(alone.weight(), Weight::NONE);
        if let Some(forget) = alone.forget {
            self.index.sets.forget.remove(&forget);
        }
    }

    /// Records with the request that drew a ticket how the ticket ended.
    pub(super) fn settle_request(&mut self, ticket: &Ticket, how: EndReason) {
        let over = RequestOutcome::Over(ticket.number, how);
        if let Some(key) = ticket.request_key() {
            if let Some(slot) = self.alone_slot(key) {
                self.set_alone(slot, over, true);
            }
        } else if let Some((session, id)) = ticket.session.zip(ticket.request) {
            let Some(slot) = self.session_slot(session) else { return };
            let session = self.data.sessions.get_mut(slot);
            if let Some(known) = session.and_then(|session| session.request_mut(id)) {
                // It weighs the same as the ticket that it replaces.
                known.outcome = over;
            }
        }
    }
}

/// Whether a command may leave more behind than its answer.
fn takes_memory(command: &Command) -> bool {
    matches!(
        command,
        Command::Acquire(_)
            | Command::Upgrade { .. }
            | Command::Note { .. }
            | Command::Revoke(_)
            | Command::Put { .. }
            | Command::Raise { .. }
    )
}

impl Session {
    fn forget_below(&mut self, lowest: RequestId) {
        if lowest > self.lowest {
            self.lowest = lowest;
            let kept = self.requests.partition_point(|request| request.id < lowest);
            for forgotten in self.requests.drain(..kept) {
                self.memory_bytes = self.memory_bytes.saturating_sub(forgotten.outcome.bytes());
            }
        }
    }

    fn find(&self, id: RequestId) -> Result<usize, usize> {
        self.requests.binary_search_by_key(&id, |request| request.id)
    }

    fn request(&self, id: RequestId) -> Option<&RememberedRequest> {
        self.requests.get(self.find(id).ok()?)
    }

    pub(crate) fn request_mut(&mut self, id: RequestId) -> Option<&mut RememberedRequest> {
        let at = self.find(id).ok()?;
        self.requests.get_mut(at)
    }

    fn remember(&mut self, request: RememberedRequest) {
        let bytes = request.outcome.bytes();
        match self.find(request.id) {
            Ok(at) => {
                let Some(known) = self.requests.get_mut(at) else { return };
                self.memory_bytes = self.memory_bytes.saturating_sub(known.outcome.bytes());
                *known = request;
            }
            Err(at) => self.requests.insert(at, request),
        }
        self.memory_bytes = self.memory_bytes.saturating_add(bytes);
    }
}
