//! An acquire or upgrade without a session, from the completion of its call to its reply. The reply
//! is never a grant that is over.

use crate::freshness::{Freshness, FreshnessCheck};
use crate::{ApiError, CallOutcome, Code, SubmitError};
use holdfast_core::{Answer, Ended, Grant, TicketStatus, Token};
use std::time::Duration;

/// A call of [`Input::Submit`](crate::Input::Submit) with `wait`, whose reply is the status of its
/// ticket.
#[derive(Debug)]
pub struct PendingAcquire {
    since: Duration,
    /// The ticket may have been granted to an earlier attempt of the same request.
    may_be_older: bool,
    looked_at: Duration,
    granted: Option<(Box<Grant>, Option<Freshness>)>,
}

/// What to do next.
#[derive(Debug)]
pub enum AcquireStep {
    /// Look the ticket up in this node's state, with [`lasts_of`](crate::lasts_of).
    Peek(Token),
    /// The same, in the current state.
    Read(Token),
    /// Reply to the caller. If this is an error, a ticket that only the caller can know of is given
    /// up.
    Done(Box<Result<TicketStatus, ApiError>>),
}

impl PendingAcquire {
    /// For a call made at `since`, on a clock that also runs while the machine sleeps. With a
    /// request id, the ticket may be older than the call.
    pub fn new(since: Duration, has_request_id: bool) -> Self {
        Self { since, may_be_older: has_request_id, looked_at: since, granted: None }
    }

    /// The call has completed.
    pub fn completed(&mut self, outcome: CallOutcome, now: Duration) -> AcquireStep {
        let (grant, at_once) = match outcome {
            CallOutcome::Answer(Ok(Answer::TicketStatus(TicketStatus::Held(grant)))) => {
                (Box::new(grant), true)
            }
            CallOutcome::Served(grant) => (grant, false),
            CallOutcome::Answer(Ok(Answer::TicketStatus(status))) => return done(Ok(status)),
            outcome => return done(Err(not_taken(outcome))),
        };
        if self.may_be_older && at_once {
            let token = grant.token;
            self.granted = Some((grant, None));
            return AcquireStep::Peek(token);
        }
        let fresh = Freshness::of(&grant, self.since);
        self.granted = Some((grant, Some(fresh)));
        self.check(now)
    }

    /// The result of [`AcquireStep::Peek`].
    pub fn peeked(
        &mut self,
        (status, lasts): (TicketStatus, Duration),
        now: Duration,
    ) -> AcquireStep {
        if !matches!(status, TicketStatus::Held(_)) {
            return done(Ok(status));
        }
        if let Some((_, fresh)) = &mut self.granted {
            *fresh = Some(Freshness::lasting(self.since, lasts));
        }
        self.check(now)
    }

    /// The result of [`AcquireStep::Read`]; `None` if the state could not be read.
    pub fn read(&mut self, seen: Option<(TicketStatus, Duration)>, now: Duration) -> AcquireStep {
        match seen {
            Some((TicketStatus::Held(_), lasts)) => {
                if let Some((_, Some(fresh))) = &mut self.granted {
                    fresh.looked(self.looked_at, lasts);
                }
                self.check(now)
            }
            Some((status, _)) => done(Ok(status)),
            None => done(Err(SubmitError::Unknown.into())),
        }
    }

    /// Makes sure that the grant is not over.
    fn check(&mut self, now: Duration) -> AcquireStep {
        let Some((grant, Some(mut fresh))) = self.granted.take() else {
            return done(Err(SubmitError::Unknown.into()));
        };
        match fresh.check(now) {
            FreshnessCheck::Yes => done(Ok(TicketStatus::Held(*grant))),
            FreshnessCheck::Unknown => done(Err(SubmitError::Unknown.into())),
            FreshnessCheck::Look => {
                let token = grant.token;
                self.looked_at = now;
                self.granted = Some((grant, Some(fresh)));
                AcquireStep::Read(token)
            }
        }
    }
}

fn done(result: Result<TicketStatus, ApiError>) -> AcquireStep {
    AcquireStep::Done(Box::new(result))
}

fn not_taken(outcome: CallOutcome) -> ApiError {
    match outcome {
        CallOutcome::Answer(Err(refusal)) => refusal.into(),
        CallOutcome::Ended(ended) => over(&ended),
        _ => ApiError::new(
            Code::OtherRequest,
            "this request_id was used for something else",
            "use a new request_id for each request",
        ),
    }
}

fn over(ended: &Ended) -> ApiError {
    let (token, how) = (ended.token, ended.how);
    let (message, hint) = if ended.held {
        let message =
            format!("ticket {token} was served, but ended before it was confirmed: {how}");
        (message, "acquire again; a longer ttl_ms survives a longer pause of this server")
    } else {
        (format!("ticket {token} was not served: {how}"), "wait longer, or try later")
    };
    let error = ApiError::new(Code::NotAcquired, message, hint);
    ApiError { how: Some(how), ..error }
}
