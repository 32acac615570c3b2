//! Acquires whose answer is their turn: the connection waits, and when it goes, so does the wait.

use crate::api::Api;
use crate::engine::{Answered, Handle, Trouble, Turn};
use crate::failure::Failure;
use holdfast_core::{
    Acquire, Answer, Command, Proof, Refusal, Request, Standing, Target, Token, Wait,
};

/// What draws a ticket.
pub(crate) enum Taking {
    /// A new one.
    Acquire(Acquire),
    /// A writer's, for a reader.
    Upgrade { target: Target, proof: Proof, wait: Wait, claims: Vec<Token> },
}

impl Taking {
    /// What it takes to give the ticket up.
    fn own(&self) -> Option<(Target, Proof)> {
        match self {
            Self::Acquire(acquire) => {
                let target = Target { name: acquire.names.first()?.clone(), token: None };
                let label = || acquire.label.clone().map(Proof::Label);
                Some((target, acquire.secret.map(Proof::Secret).or_else(label)?))
            }
            Self::Upgrade { target, proof, .. } => Some((target.clone(), proof.clone())),
        }
    }

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
pub(crate) async fn take(
    api: &Api,
    request: Option<Request>,
    taking: Taking,
) -> Result<Standing, Failure> {
    // With a request id a retry finds the ticket; without one nobody else knows of it.
    let alone = request.is_none();
    let own = taking.own().filter(|_| alone);
    let keeps = matches!(taking, Taking::Upgrade { .. });
    let Answered { answer, turn } = api.ask(request, taking.command()).await?;
    let standing = match answer? {
        Answer::Standing(standing) => standing,
        _ => {
            return Err(Failure::conflict(
                "other_request",
                "this request_id was used for something else",
                "use a new request_id for each request",
            ));
        }
    };
    let (Standing::Waiting { token, .. }, Some(turn)) = (&standing, turn) else {
        return Ok(standing);
    };
    let abandoned = own.map(|(target, proof)| Abandoned {
        keeps,
        handle: Some(api.handle.clone()),
        target: Target { token: Some(*token), ..target },
        proof,
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
    /// A writer that was a reader goes on as one: its lease ends it, as a death.
    keeps: bool,
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
        let (target, proof, keeps) = (self.target.clone(), self.proof.clone(), self.keeps);
        tokio::spawn(async move {
            let cancel = Command::Cancel { target: target.clone(), proof: proof.clone() };
            let cancelled = handle.ask(None, cancel).await;
            let served =
                |answered: &Answered| matches!(answered.answer, Err(Refusal::AlreadyServed(_)));
            if !keeps && cancelled.as_ref().is_ok_and(served) {
                // Its turn came as the connection went. If this fails, its deadline ends it.
                let _ = handle.ask(None, Command::Release { target, proof }).await;
            }
        });
    }
}
