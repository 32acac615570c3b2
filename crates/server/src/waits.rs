//! Acquires whose answer is their turn: the connection waits, and when it goes, so does the wait.

use crate::api::Api;
use crate::engine::{Answered, Handle, Trouble, Turn};
use crate::failure::Failure;
use holdfast_core::{Acquire, Answer, Command, Proof, Refusal, Request, Standing, Target};

/// Takes a lock, and returns when it is held, or when its wait or its earlier ticket is over.
pub(crate) async fn acquire(
    api: &Api,
    request: Option<Request>,
    acquire: Acquire,
) -> Result<Standing, Failure> {
    // With a request id a retry finds the ticket; without one nobody else knows of it.
    let alone = request.is_none();
    let own = acquire.names.first().cloned().zip(acquire.secret).filter(|_| alone);
    let Answered { answer, turn } = api.ask(request, Command::Acquire(acquire)).await?;
    let standing = match answer? {
        Answer::Standing(standing) => standing,
        other => {
            return Err(Failure::conflict(
                "other_request",
                format!("this request_id was used for something else: {other:?}"),
                "use a new request_id for each request",
            ));
        }
    };
    let (Standing::Waiting { token, .. }, Some(turn)) = (&standing, turn) else {
        return Ok(standing);
    };
    let abandoned = own.map(|(name, secret)| Abandoned {
        handle: Some(api.handle.clone()),
        target: Target { name, token: Some(*token) },
        proof: Proof::Secret(secret),
    });
    let turn = turn.await;
    if let Some(abandoned) = abandoned {
        abandoned.not_any_more();
    }
    match turn {
        Ok(Turn::Granted(grant)) => Ok(Standing::Held(*grant)),
        Ok(Turn::Ended(ended)) => {
            let message = format!("ticket {} was not served: {}", ended.token, ended.how);
            Err(Failure::conflict("not_acquired", message, "wait longer, or try later"))
        }
        // This node jumped over entries, or stops: it does not know.
        Err(_) => Err(Trouble::Unknown.into()),
    }
}

/// A wait whose connection may close: then nobody else knows of its ticket, and it is given up.
struct Abandoned {
    /// None once the wait has ended in order.
    handle: Option<Handle>,
    target: Target,
    proof: Proof,
}

impl Abandoned {
    /// The wait has ended in order.
    fn not_any_more(mut self) {
        self.handle = None;
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        let (target, proof) = (self.target.clone(), self.proof.clone());
        tokio::spawn(async move {
            let cancel = Command::Cancel { target: target.clone(), proof: proof.clone() };
            let cancelled = handle.ask(None, cancel).await;
            let served =
                |answered: &Answered| matches!(answered.answer, Err(Refusal::AlreadyServed(_)));
            if cancelled.as_ref().is_ok_and(served) {
                // Its turn came as the connection went. If this fails, its deadline ends it.
                let _ = handle.ask(None, Command::Release { target, proof }).await;
            }
        });
    }
}
