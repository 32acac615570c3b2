//! What the core's queries must return.

use super::acquire::permits;
use super::{Model, Ticket};
use holdfast_core::{Counts, LockName, LockView, SessionId, SessionView, TicketView, Token};

impl Model {
    /// The names that are held, waited for or remembered, in byte order.
    pub(crate) fn lock_names(&self) -> Vec<LockName> {
        let standing = self.tickets.iter().flat_map(|ticket| ticket.names.iter());
        let mut names: Vec<LockName> =
            standing.chain(self.pasts.iter().map(|past| &past.name)).cloned().collect();
        names.sort();
        names.dedup();
        names
    }

    pub(crate) fn lock_view(&self, name: &LockName) -> Option<LockView> {
        if !self.lock_names().contains(name) {
            return None;
        }
        let view = |tickets: Vec<&Ticket>| -> Vec<TicketView> {
            tickets.into_iter().map(|ticket| self.ticket_view(ticket)).collect()
        };
        let (holders, waiters) = (view(self.holders(name)), view(self.waiters(name)));
        let past = self.past(name);
        Some(LockView {
            name: name.clone(),
            permits: self.line(name).first().and_then(|ticket| permits(ticket.mode)),
            holding: holders.len(),
            holders,
            waiting: waiters.len(),
            waiters,
            last: past.and_then(|past| past.last.clone()),
            needs_recovery: past.and_then(|past| Some(past.death.as_ref()?.ending.clone())),
            delayed_until_ms: self.delayed_until(name),
        })
    }

    fn ticket_view(&self, ticket: &Ticket) -> TicketView {
        let from_ms = if ticket.held { ticket.granted_ms } else { ticket.joined_ms };
        TicketView {
            token: ticket.token,
            names: ticket.shown_names(),
            label: self.label_of(ticket),
            session: ticket.session,
            mode: ticket.mode,
            lease: ticket.lease,
            door: ticket.door,
            held: ticket.held,
            for_ms: self.now_ms - from_ms,
            due_ms: ticket.due_ms,
            note: ticket.note.clone(),
            claims: ticket.claims.clone(),
            revoked_until_ms: ticket.revocation.as_ref().map(|revocation| revocation.until_ms),
        }
    }

    pub(crate) fn session_views(&self) -> Vec<SessionView> {
        let views = self.sessions.iter().map(|session| SessionView {
            id: session.id,
            label: session.label.clone(),
            kind: session.kind,
            ttl_ms: session.ttl_ms,
            opened_ms: session.opened_ms,
            tickets: self.all_tickets_of(session.id),
            ended: session.ended,
        });
        views.collect()
    }

    /// The tickets of a session, those that end with it first.
    fn all_tickets_of(&self, id: SessionId) -> Vec<Token> {
        let mut tickets = self.tickets_of(id);
        let drew = self.tickets.iter().filter(|ticket| ticket.session == Some(id));
        let others: Vec<Token> =
            drew.map(|ticket| ticket.token).filter(|token| !tickets.contains(token)).collect();
        tickets.extend(others);
        tickets
    }

    /// The totals, except for the bytes, which are the core's own.
    pub(crate) fn counts(&self, bytes: usize) -> Counts {
        let holders = self.tickets.iter().filter(|ticket| ticket.held).count();
        Counts {
            locks: self.lock_names().len(),
            holders,
            waiters: self.tickets.len() - holders,
            sessions: self.sessions.len(),
            deaths: self.deaths(),
            register_keys: self.register.len(),
            objects: self.objects.len(),
            nodes: self.nodes.len() - 4,
            requests_alone: self.alone.len(),
            bytes,
            counter: self.counter,
        }
    }
}
