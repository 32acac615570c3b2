//! Acquires whose answer is their turn.

use super::{Engine, EventSink, Undelivered};
use crate::uptime::Uptime;
use holdfast_core::{Answer, Command, Ended, Grant, Request, Standing};
use holdfast_gateway::{ApiError, Code, Fresh, Freshness, Outcome, SubmitError, lasts_of};

/// A lock that was asked for, and how its ticket stands now. Unless it is delivered, a ticket that only
/// the caller can know of is given up.
pub(crate) struct Taken {
    standing: Standing,
    undelivered: Option<Undelivered>,
}

impl Taken {
    pub(crate) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The caller has the answer.
    pub(crate) fn delivered(self) -> Standing {
        if let Some(undelivered) = self.undelivered {
            undelivered.delivered();
        }
        self.standing
    }
}

impl Engine {
    /// Takes a lock with a command that draws a ticket (an acquire or an upgrade), and returns when it
    /// is held, or when its wait or its earlier ticket is over.
    ///
    /// If this is dropped before it returns, a ticket that only the caller can know of is given up.
    /// `follow` is closed if the lock is taken over later in its holder's name.
    pub(crate) async fn take(
        &self,
        request: Option<Request>,
        command: Command,
        follow: Option<EventSink>,
    ) -> Result<Taken, ApiError> {
        let since = Uptime::now();
        let may_be_older = request.is_some();
        let (outcome, undelivered) = self.submit_for_turn(request, command, follow).await?;
        let standing = match outcome {
            Outcome::Answer(Ok(Answer::Standing(Standing::Held(grant)))) if may_be_older => {
                let token = grant.token;
                match self.peek(move |node| lasts_of(node.state(), token)).await? {
                    (Standing::Held(_), lasts) => {
                        let fresh = Freshness::lasting(since.since_boot(), lasts);
                        self.confirm(grant, fresh).await?
                    }
                    (over, _) => over,
                }
            }
            Outcome::Answer(Ok(Answer::Standing(Standing::Held(grant)))) => {
                let fresh = Freshness::of(&grant, since.since_boot());
                self.confirm(grant, fresh).await?
            }
            Outcome::Served(grant) => {
                let fresh = Freshness::of(&grant, since.since_boot());
                self.confirm(*grant, fresh).await?
            }
            Outcome::Answer(Ok(Answer::Standing(standing))) => standing,
            outcome => {
                if let Some(undelivered) = undelivered {
                    undelivered.delivered();
                }
                return Err(not_taken(outcome));
            }
        };
        Ok(Taken { standing, undelivered })
    }

    /// Makes sure that a grant is not over.
    async fn confirm(&self, grant: Grant, mut fresh: Freshness) -> Result<Standing, ApiError> {
        loop {
            match fresh.check(Uptime::now().since_boot()) {
                Fresh::Yes => return Ok(Standing::Held(grant)),
                Fresh::Unknown => return Err(SubmitError::Unknown.into()),
                Fresh::Look => {}
            }
            let (since, token) = (Uptime::now().since_boot(), grant.token);
            let looked = self.read(move |node| lasts_of(node.state(), token)).await;
            let (standing, lasts) = looked.map_err(|_| SubmitError::Unknown)?;
            if !matches!(standing, Standing::Held(_)) {
                return Ok(standing);
            }
            fresh.looked(since, lasts);
        }
    }
}

fn not_taken(outcome: Outcome) -> ApiError {
    match outcome {
        Outcome::Answer(Err(refusal)) => refusal.into(),
        Outcome::Ended(ended) => over(&ended),
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
