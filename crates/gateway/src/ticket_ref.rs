//! Tickets that only their caller can know of: if the answer does not reach it, they are given up.

use holdfast_core::{Command, Proof, Target};

/// A ticket, and what it takes to give it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketRef {
    pub(crate) target: Target,
    pub(crate) proof: Proof,
    /// Whether it is released if it has been served. The new ticket of an upgrade is not: its
    /// caller was a holder before and goes on as one.
    pub(crate) release_if_served: bool,
}

impl TicketRef {
    /// The ticket that a command will draw, if it draws one; its token is not known yet.
    pub(crate) fn drawn_by(command: &Command) -> Option<Self> {
        match command {
            Command::Acquire(acquire) => {
                let target = Target { name: acquire.names.first()?.clone(), token: None };
                let label = || acquire.label.clone().map(Proof::Label);
                let proof = acquire.secret.map(Proof::Secret).or_else(label)?;
                Some(Self { target, proof, release_if_served: true })
            }
            Command::Upgrade { target, proof, .. } => {
                let (target, proof) = (target.clone(), proof.clone());
                Some(Self { target, proof, release_if_served: false })
            }
            _ => None,
        }
    }

    pub(crate) fn cancel(&self) -> Command {
        Command::Cancel { target: self.target.clone(), proof: self.proof.clone() }
    }

    pub(crate) fn release(&self) -> Command {
        Command::Release { target: self.target.clone(), proof: self.proof.clone() }
    }
}
