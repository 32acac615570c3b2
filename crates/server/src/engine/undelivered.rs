//! Tickets that only their caller can know of: if the answer does not reach it, they are given up.

use super::inbox::{Inbox, Post};
use holdfast_core::{Command, Proof, Target};
use std::sync::Arc;

/// Tickets that are waiting to be given up because the node could not take the command. Beyond it
/// they are left to their deadlines.
const RETRIES_MAX: usize = 100_000;

/// A ticket, and what it takes to give it up.
#[derive(Debug, Clone)]
pub(crate) struct TicketRef {
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

/// Travels with the answer about a ticket. Wherever the answer gets lost on its way to the caller
/// (nobody receives it, or its task is never polled again), this is dropped with it, and the loop
/// gives the ticket up.
#[derive(Debug)]
pub(crate) struct Undelivered {
    /// None once the answer has been delivered.
    ticket: Option<TicketRef>,
    inbox: Arc<Inbox>,
}

impl Undelivered {
    pub(crate) fn new(ticket: TicketRef, inbox: &Arc<Inbox>) -> Self {
        Self { ticket: Some(ticket), inbox: inbox.clone() }
    }

    /// The caller has the answer: what becomes of the ticket is up to the caller from now on.
    pub(crate) fn delivered(mut self) {
        self.ticket = None;
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            // There is one for each ticket that this node drew, so their number is bounded.
            self.inbox.post_always(Post::Abandon(ticket));
        }
    }
}

/// Tickets whose end the node could not take yet: it was busy, or lost track of the command.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    tickets: Vec<TicketRef>,
}

impl Retries {
    pub(crate) fn add(&mut self, ticket: TicketRef) {
        if self.tickets.len() < RETRIES_MAX {
            self.tickets.push(ticket);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    pub(crate) fn take(&mut self) -> Vec<TicketRef> {
        std::mem::take(&mut self.tickets)
    }
}
