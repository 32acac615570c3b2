//! Waits of connections that have no session: what becomes of them when the connection goes.

use crate::engine::{Answered, Handle};
use crate::failure::Failure;
use holdfast_core::{Command, Ended, Proof, Refusal, Target};

/// A wait whose connection may close: then nobody else knows of its ticket, and it is given up.
pub(crate) struct Abandoned {
    /// None once the wait has ended in order.
    handle: Option<Handle>,
    target: Target,
    proof: Proof,
}

impl Abandoned {
    /// Gives up the ticket when it is dropped.
    pub(crate) fn new(handle: Handle, target: Target, proof: Proof) -> Self {
        Self { handle: Some(handle), target, proof }
    }

    /// The wait has ended in order.
    pub(crate) fn not_any_more(mut self) {
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

pub(crate) fn not_served(ended: &Ended) -> Failure {
    let message = format!("ticket {} was not served: {}", ended.token, ended.how);
    Failure::conflict("not_acquired", message, "wait longer, or try later")
}
