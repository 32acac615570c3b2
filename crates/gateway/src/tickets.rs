//! Gives up tickets that have no caller any more, and confirms grants of waits without a session.
//! Both are retried until the node has accepted them.

use crate::TicketRef;
use crate::calls::Kind;
use crate::gateway::Gateway;
use crate::io::Driver;
use holdfast_core::{Command, Grant, Lease, Proof, Refusal, Target};
use holdfast_node::{self as node, Node, Reply};
use std::time::Duration;

/// How long until the node is asked again to end an abandoned ticket or to confirm a grant.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Tickets that are waiting to be given up because the node could not accept the command. Any
/// further ones are left to their deadlines.
const RETRIES_MAX: usize = 100_000;

/// What the node could not accept yet.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    /// Abandoned tickets that are still to be given up.
    tickets: Vec<TicketRef>,
    /// Grants that are still to be confirmed.
    #[expect(clippy::vec_box, reason = "they come from `Kind` and go back to it, boxed")]
    grants: Vec<Box<Grant>>,
    at: Duration,
}

impl Retries {
    /// When they are retried, if there are any.
    pub(crate) fn due(&self) -> Option<Duration> {
        (!self.tickets.is_empty() || !self.grants.is_empty()).then_some(self.at)
    }

    /// Retries all of them at this time, or earlier if they are due earlier: one more failure must
    /// not delay the rest.
    fn by(&mut self, at: Duration) {
        self.at = self.due().map_or(at, |due| due.min(at));
    }
}

impl<D: Driver> Gateway<D> {
    /// Retries what the node could not accept, if it is time.
    pub(crate) fn retry(&mut self, now: Duration, node: &Node) {
        if self.retries.due().is_none_or(|at| now < at) {
            return;
        }
        let Retries { tickets, grants, .. } = std::mem::take(&mut self.retries);
        for ticket in tickets {
            self.give_up(ticket, now, node);
        }
        for grant in grants {
            self.confirm(grant, now, node);
        }
    }

    /// Ends a ticket that has no caller any more.
    pub(crate) fn give_up(&mut self, ticket: TicketRef, now: Duration, node: &Node) {
        let view = ticket.target.token.and_then(|token| node.state().ticket_view(token));
        let held = view.is_some_and(|view| view.held);
        let command =
            if held && ticket.release_if_served { ticket.release() } else { ticket.cancel() };
        let ask = self.pending(None, now, Kind::GiveUp(ticket));
        self.node_inputs.push(node::Input::Submit { ask, request: None, command });
    }

    /// Schedules another attempt to give up a ticket.
    fn give_up_later(&mut self, ticket: TicketRef, at: Duration) {
        self.retries.by(at);
        if self.retries.tickets.len() < RETRIES_MAX {
            self.retries.tickets.push(ticket);
        }
    }

    /// Starts the deadline of a grant, if a caller here waits for it. The caller is notified only
    /// afterwards: a lock that it was promised must not end with this process. A grant that is not
    /// confirmed ends with this node's session.
    pub(crate) fn confirm(&mut self, grant: Box<Grant>, now: Duration, node: &Node) {
        let Lease::Unconfirmed { ttl_ms } = grant.lease else { return };
        let own = node.own_session().filter(|own| Some(own.id) == grant.session);
        let Some((session, name)) = own.zip(grant.names.as_slice().first()) else { return };
        if !self.waits.is_awaited(grant.token) {
            return;
        }
        let target = Target { name: name.clone(), token: Some(grant.token) };
        let command = Command::Renew { target, proof: Proof::Secret(session.secret), ttl_ms };
        let ask = self.pending(None, now, Kind::Confirm(grant));
        self.node_inputs.push(node::Input::Submit { ask, request: None, command });
    }

    /// The reply to a confirmation: notifies the callers that wait for the grant, or schedules a
    /// retry.
    pub(crate) fn confirmed(&mut self, mut grant: Box<Grant>, reply: &Reply, now: Duration) {
        match (reply, grant.lease) {
            (Reply::Answer(Ok(_)), Lease::Unconfirmed { ttl_ms }) => {
                grant.lease = Lease::Deadline { ttl_ms };
                self.served(&grant);
            }
            // It ended before that, and its waiters were notified then.
            (Reply::Answer(_), _) => {}
            // Unknown, or not accepted. Confirming twice has no second effect.
            _ => {
                self.retries.by(now.saturating_add(RETRY_AFTER));
                self.retries.grants.push(grant);
            }
        }
    }

    /// The reply to giving up a ticket: schedules a retry unless the ticket is over.
    pub(crate) fn given_up(&mut self, ticket: TicketRef, reply: &Reply, now: Duration) {
        match reply {
            // It was served before the cancel arrived.
            Reply::Answer(Err(Refusal::AlreadyServed(_))) if ticket.release_if_served => {
                self.give_up_later(ticket, now);
            }
            Reply::Answer(_) => {}
            // Unknown, or not accepted. Giving up twice has no second effect.
            _ => self.give_up_later(ticket, now.saturating_add(RETRY_AFTER)),
        }
    }
}
