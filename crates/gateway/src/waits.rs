//! Which calls wait for which ticket. Usually one; a retry may be a second.

use crate::TicketRef;
use crate::index::Index;
use crate::io::{CallId, Driver};
use holdfast_core::Token;

/// A call whose ticket waits.
pub(crate) struct Waiter<D: Driver> {
    pub(crate) call: CallId,
    pub(crate) reply_to: D::ReplyTo,
    /// Set if nobody but the caller can know of it.
    pub(crate) ticket: Option<TicketRef>,
    pub(crate) follow: Option<D::Sink>,
}

pub(crate) struct Waits<D: Driver> {
    by_ticket: Index<Token, Vec<Waiter<D>>>,
}

impl<D: Driver> Default for Waits<D> {
    fn default() -> Self {
        Self { by_ticket: Index::default() }
    }
}

impl<D: Driver> Waits<D> {
    pub(crate) fn add(&mut self, token: Token, waiter: Waiter<D>) {
        self.by_ticket.entry(token).push(waiter);
    }

    /// Whether a call waits for this ticket.
    pub(crate) fn is_awaited(&self, token: Token) -> bool {
        self.by_ticket.get(&token).is_some()
    }

    /// Takes the calls that wait for a ticket.
    pub(crate) fn take(&mut self, token: Token) -> Vec<Waiter<D>> {
        self.by_ticket.remove(&token).unwrap_or_default()
    }

    /// Takes one call that no longer waits.
    pub(crate) fn remove(&mut self, token: Token, call: CallId) -> Option<Waiter<D>> {
        let waiters = self.by_ticket.get_mut(&token)?;
        let at = waiters.iter().position(|waiter| waiter.call == call)?;
        let removed = waiters.swap_remove(at);
        if waiters.is_empty() {
            self.by_ticket.remove(&token);
        }
        Some(removed)
    }

    pub(crate) fn take_all(&mut self) -> Vec<Waiter<D>> {
        let tokens = self.by_ticket.keys();
        tokens.into_iter().flat_map(|token| self.take(token)).collect()
    }
}
