//! One effect for a retried request.

use super::Model;
use super::records::{Known, Remembered};
use holdfast_core::{
    Acquire, Answer, Bound, Command, InvalidField, Proof, Refusal, RequestId, RequestKey,
    RequestRef, Secret, SessionRef, TicketStatus, Wait,
};

impl Model {
    /// A command with a request id: carried out once, and later answered with the current state.
    pub(super) fn decide_once(
        &mut self,
        request: RequestRef,
        command: Command,
    ) -> Result<Answer, Refusal> {
        self.check_takes_id(&request, &command)?;
        self.check_request(&request)?;
        let asked = gist(&command);
        if let Some(known) = self.known(&request) {
            if known.asked.is_some_and(|before| before != asked) {
                return Err(Refusal::OtherRequest);
            }
            return match known.became {
                Remembered::Barred => Err(Refusal::Barred),
                other => self.current_answer(other),
            };
        }
        self.check_memory(&request)?;
        let answer = self.decide(command, Some(&request));
        let became = match &answer {
            Ok(Answer::TicketStatus(TicketStatus::Waiting { token, .. })) => {
                Remembered::Drew(*token)
            }
            Ok(Answer::TicketStatus(TicketStatus::Held(grant))) => Remembered::Drew(grant.token),
            other => Remembered::Answered(other.clone()),
        };
        self.remember(request, Known { asked: Some(asked), became });
        answer
    }

    /// The outcome of a request; one that was not seen is barred.
    pub(super) fn outcome(&mut self, request: &RequestRef) -> Result<Answer, Refusal> {
        self.check_request(request)?;
        if let Some(known) = self.known(request) {
            return self.current_answer(known.became);
        }
        self.check_memory(request)?;
        self.remember(request.clone(), Known { asked: None, became: Remembered::Barred });
        Ok(Answer::Barred)
    }

    fn current_answer(&self, remembered: Remembered) -> Result<Answer, Refusal> {
        match remembered {
            Remembered::Drew(token) => {
                self.ticket_status(token).map(Answer::TicketStatus).ok_or(Refusal::Barred)
            }
            Remembered::Answered(answer) => answer,
            Remembered::Barred => Ok(Answer::Barred),
        }
    }

    fn check_takes_id(&self, request: &RequestRef, command: &Command) -> Result<(), Refusal> {
        let draws = matches!(command, Command::Acquire(_) | Command::Upgrade { .. });
        let changes = matches!(
            command,
            Command::Downgrade { .. }
                | Command::Cancel { .. }
                | Command::Release { .. }
                | Command::Renew { .. }
                | Command::Persist { .. }
                | Command::Note { .. }
                | Command::Recovered { .. }
                | Command::Revoke(_)
                | Command::Force { .. }
                | Command::Put { .. }
                | Command::Raise { .. }
        );
        let alone = matches!(request, RequestRef::Alone(_));
        first_broken([
            (!draws && !changes, InvalidField::NoRequestId),
            (!draws && alone, InvalidField::RequestNeedsSession),
        ])
    }

    /// Whether the session may make the request, and can still get its answer.
    fn check_request(&mut self, request: &RequestRef) -> Result<(), Refusal> {
        let RequestRef::InSession { session, id, lowest } = request else { return Ok(()) };
        let session = self.owned_session(*session)?;
        if id < lowest {
            return Err(Refusal::BadRequest(InvalidField::RequestBelowLowest));
        }
        session.lowest = session.lowest.max(*lowest);
        session.requests.retain(|(id, _)| *id >= session.lowest);
        if *id < session.lowest {
            return Err(Refusal::TooOldToKnow(*id));
        }
        Ok(())
    }

    fn known(&mut self, request: &RequestRef) -> Option<Known> {
        match request {
            RequestRef::InSession { session, id, .. } => self.in_session(session, *id),
            RequestRef::Alone(key) => self
                .alone
                .iter()
                .find(|(known, _, _)| known == key)
                .map(|(_, what, _)| what.clone()),
        }
    }

    fn in_session(&mut self, session: &SessionRef, id: RequestId) -> Option<Known> {
        let session = self.owned_session(*session).ok()?;
        session.requests.iter().find(|(known, _)| *known == id).map(|(_, what)| what.clone())
    }

    /// Whether there is room for one more request.
    fn check_memory(&mut self, request: &RequestRef) -> Result<(), Refusal> {
        let limits = self.limits;
        let (len, max, bound) = match request {
            RequestRef::InSession { session, .. } => {
                let len = self.owned_session(*session)?.requests.len();
                (len, limits.requests_per_session_max, Bound::Requests)
            }
            RequestRef::Alone(_) => {
                (self.alone.len(), limits.requests_alone_max, Bound::RequestsAlone)
            }
        };
        if len < max { Ok(()) } else { Err(Refusal::Full(bound)) }
    }

    fn remember(&mut self, request: RequestRef, what: Known) {
        match request {
            RequestRef::InSession { session, id, .. } => {
                if let Ok(session) = self.owned_session(session) {
                    session.requests.push((id, what));
                }
            }
            RequestRef::Alone(key) => {
                let over = !matches!(what.became, Remembered::Drew(_));
                self.alone.push((key, what, over.then_some(self.now_ms)));
            }
        }
    }

    /// When a request without a session may be forgotten.
    pub(super) fn forgotten_at(&self, key: &RequestKey) -> Option<u64> {
        let (_, what, answered_ms) = self.alone.iter().find(|(known, _, _)| known == key)?;
        let over_ms = match &what.became {
            Remembered::Drew(token) => {
                self.over.iter().find(|over| over.token == *token).map(|over| over.at_ms)
            }
            Remembered::Answered(_) | Remembered::Barred => *answered_ms,
        };
        Some(over_ms?.saturating_add(self.limits.request_alone_kept_ms))
    }
}

/// A command without what may differ in a retry: proofs, how long it waits, and the label and note
/// of a new ticket.
fn gist(command: &Command) -> Command {
    let nobody = || Proof::Secret(Secret([0; 16]));
    match command.clone() {
        Command::Acquire(acquire) => {
            let (mut names, mut claims) = (acquire.names, acquire.claims);
            names.sort();
            claims.sort();
            let session = acquire.session.map(|owner| owner.id);
            let session = session.map(|id| SessionRef { id, secret: Secret([0; 16]) });
            Command::Acquire(Acquire {
                names,
                claims,
                session,
                wait: Wait::Forever,
                label: None,
                note: None,
                secret: None,
                ..acquire
            })
        }
        Command::Upgrade { target, mut claims, .. } => {
            claims.sort();
            Command::Upgrade { target, proof: nobody(), wait: Wait::Forever, claims }
        }
        Command::Downgrade { target, .. } => Command::Downgrade { target, proof: nobody() },
        Command::Cancel { target, .. } => Command::Cancel { target, proof: nobody() },
        Command::Release { target, .. } => Command::Release { target, proof: nobody() },
        Command::Renew { target, ttl_ms, .. } => Command::Renew { target, proof: nobody(), ttl_ms },
        Command::Persist { target, .. } => Command::Persist { target, proof: nobody() },
        Command::Note { target, note, .. } => Command::Note { target, proof: nobody(), note },
        Command::Recovered { target, .. } => Command::Recovered { target, proof: nobody() },
        other => other,
    }
}

/// Refuses a request for the first rule that it breaks.
pub(super) fn first_broken<const N: usize>(
    rules: [(bool, InvalidField); N],
) -> Result<(), Refusal> {
    for (broken, bad) in rules {
        if broken {
            return Err(Refusal::BadRequest(bad));
        }
    }
    Ok(())
}
