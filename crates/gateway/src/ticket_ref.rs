//! Tickets that nobody but their caller can know of: if the answer can't be delivered, they are
//! given up.

use holdfast_core::{Command, Proof, Target};

/// A ticket, with what is needed to give it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketRef {
    pub(crate) target: Target,
    pub(crate) proof: Proof,
    /// Whether to release it if it has been served. Not for the new ticket of an upgrade: its
    /// caller held the lock before and still does.
    pub(crate) release_if_served: bool,
}

impl TicketRef {
    /// The ticket that a command will draw, if any; its token is not known yet.
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
