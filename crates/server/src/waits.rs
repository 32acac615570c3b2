//! Acquires whose answer is their turn: the connection waits, and when it goes, so does the wait.

use crate::api::Api;
use crate::engine::{Answered, Trouble, Turn};
use crate::failure::Failure;
use holdfast_core::{Acquire, Answer, Command, Proof, Request, Standing, Target, Token, Wait};

/// What draws a ticket.
pub(crate) enum Taking {
    /// A new one.
    Acquire(Acquire),
    /// A writer's, for a reader.
    Upgrade { target: Target, proof: Proof, wait: Wait, claims: Vec<Token> },
}

impl Taking {
    fn command(self) -> Command {
        match self {
            Self::Acquire(acquire) => Command::Acquire(acquire),
            Self::Upgrade { target, proof, wait, claims } => {
                Command::Upgrade { target, proof, wait, claims }
            }
        }
    }
}

/// Takes a lock, and returns when it is held, or when its wait or its earlier ticket is over.
///
/// If this is dropped before it returns, a ticket that only the caller can know of is given up.
pub(crate) async fn take(
    api: &Api,
    request: Option<Request>,
    taking: Taking,
) -> Result<Standing, Failure> {
    let (answered, undelivered) = api.ask_undelivered(request, taking.command()).await?;
    let settled = settle(answered).await?;
    if let Some(undelivered) = undelivered {
        undelivered.delivered();
    }
    settled
}

/// Waits until the answer is final: what it is, or an error if this node can't tell.
async fn settle(Answered { answer, turn }: Answered) -> Result<Result<Standing, Failure>, Trouble> {
    let standing = match answer {
        Ok(Answer::Standing(standing)) => standing,
        Ok(_) => {
            return Ok(Err(Failure::conflict(
                "other_request",
                "this request_id was used for something else",
                "use a new request_id for each request",
            )));
        }
        Err(refusal) => return Ok(Err(refusal.into())),
    };
    let (Standing::Waiting { .. }, Some(turn)) = (&standing, turn) else {
        return Ok(Ok(standing));
    };
    match turn.await {
        Ok(Turn::Granted(grant)) => Ok(Ok(Standing::Held(*grant))),
        Ok(Turn::Ended(ended)) => {
            let message = format!("ticket {} was not served: {}", ended.token, ended.how);
            let hint = "wait longer, or try later";
            let failure = Failure::conflict("not_acquired", message, hint);
            Ok(Err(Failure { how: Some(ended.how), ..failure }))
        }
        // This node jumped over entries, or stops.
        Err(_) => Err(Trouble::Unknown),
    }
}
