//! Which ticket is next, and the grant.

use super::{Model, Ticket};
use holdfast_core::{
    Effect, EndReason, EventKind, Grant, Label, Lease, LockName, Mode, PriorEndings, TicketStatus,
    Token,
};

impl Model {
    pub(super) fn ticket(&self, token: Token) -> Option<&Ticket> {
        self.tickets.iter().find(|ticket| ticket.token == token)
    }

    pub(super) fn ticket_mut(&mut self, token: Token) -> Option<&mut Ticket> {
        self.tickets.iter_mut().find(|ticket| ticket.token == token)
    }

    pub(super) fn line(&self, name: &LockName) -> Vec<&Ticket> {
        self.tickets.iter().filter(|ticket| ticket.is_in_line(name)).collect()
    }

    pub(super) fn holders(&self, name: &LockName) -> Vec<&Ticket> {
        self.line(name).into_iter().filter(|ticket| ticket.held).collect()
    }

    pub(super) fn waiters(&self, name: &LockName) -> Vec<&Ticket> {
        self.line(name).into_iter().filter(|ticket| !ticket.held).collect()
    }

    /// A ticket's label: its own, or else its session's.
    pub(super) fn label_of(&self, ticket: &Ticket) -> Option<Label> {
        let of_session = || self.session(ticket.session?)?.label.clone();
        ticket.label.clone().or_else(of_session)
    }

    pub(super) fn delayed_until(&self, name: &LockName) -> Option<u64> {
        self.past(name)?.delayed_until_ms
    }

    /// Whether a ticket could be held in addition to the current holders of this name.
    pub(super) fn has_room(&self, ticket: &Ticket, name: &LockName) -> bool {
        let holders = self.holders(name);
        let mut others = holders.iter().filter(|holder| ticket.upgrades != Some(holder.token));
        match ticket.mode {
            Mode::Exclusive => others.next().is_none(),
            Mode::Shared => others.all(|holder| holder.mode == Mode::Shared),
            Mode::Permit { of } => others.count() < of as usize,
        }
    }

    /// Whether there are no waiters in this line and a ticket would be held at once.
    pub(super) fn free_for(&self, ticket: &Ticket, name: &LockName) -> bool {
        self.waiters(name).is_empty()
            && self.delayed_until(name).is_none()
            && self.has_room(ticket, name)
    }

    /// Whether a waiting ticket is next, in all of its lines.
    fn turn_of(&self, ticket: &Ticket) -> bool {
        let dead = ticket.session.and_then(|id| self.session(id)?.ended).is_some();
        let heads = |name| self.waiters(name).first().is_some_and(|w| w.token == ticket.token);
        !dead
            && ticket.names.iter().all(|name| {
                heads(name) && self.delayed_until(name).is_none() && self.has_room(ticket, name)
            })
    }

    /// Serves tickets until none is next.
    pub(super) fn serve(&mut self) {
        while let Some(next) = self.tickets.iter().find(|t| !t.held && self.turn_of(t)) {
            self.grant(next.token);
        }
    }

    fn grant(&mut self, token: Token) {
        let Some(ticket) = self.ticket(token).cloned() else { return };
        if let Some(shared) = ticket.upgrades.filter(|shared| self.ticket(*shared).is_some()) {
            // The holder stays the same, so nobody needs to learn of this ending.
            self.leave(shared, EndReason::Released, None, false);
        }
        let after: Vec<PriorEndings> =
            ticket.names.iter().filter_map(|name| self.after(name)).collect();
        let now_ms = self.now_ms;
        let label = self.label_of(&ticket);
        let Some(ticket) = self.ticket_mut(token) else { return };
        ticket.held = true;
        ticket.granted_ms = now_ms;
        ticket.claims.clear();
        ticket.upgrades = None;
        ticket.after = (!after.is_empty()).then(|| after.into());
        ticket.due_ms = match ticket.lease {
            Lease::Deadline { ttl_ms } | Lease::Unconfirmed { ttl_ms } => later(now_ms, ttl_ms),
            Lease::Session | Lease::Permanent => None,
        };
        // It may outlive its session, and must keep its label then.
        if ticket.lease != Lease::Session {
            ticket.label = label;
        }
        let ticket = ticket.clone();
        self.happened(&ticket, &EventKind::Granted);
        self.effects.push(Effect::Granted(self.shown_grant(&ticket)));
    }

    fn after(&self, name: &LockName) -> Option<PriorEndings> {
        let past = self.past(name)?;
        if past.last.is_none() && past.death.is_none() {
            return None;
        }
        let recover = past.death.clone().map(|death| death.ending);
        Some(PriorEndings { name: name.clone(), last: past.last.clone(), recover })
    }

    fn shown_grant(&self, ticket: &Ticket) -> Grant {
        Grant {
            token: ticket.token,
            names: ticket.shown_names(),
            mode: ticket.mode,
            lease: ticket.lease,
            session: ticket.session,
            label: self.label_of(ticket),
            note: ticket.note.clone(),
            secret: ticket.secret,
            waited_ms: ticket.granted_ms - ticket.joined_ms,
            after: ticket.after.clone(),
        }
    }

    /// A ticket's current state.
    pub(super) fn ticket_status(&self, token: Token) -> Option<TicketStatus> {
        if let Some(over) = self.over.iter().find(|over| over.token == token) {
            return Some(TicketStatus::Over { token, how: over.how });
        }
        let ticket = self.ticket(token)?;
        if ticket.held {
            return Some(TicketStatus::Held(self.shown_grant(ticket)));
        }
        let place = |name| 1 + self.waiters(name).iter().filter(|w| w.token < token).count();
        Some(TicketStatus::Waiting {
            token,
            secret: ticket.secret,
            place: ticket.names.iter().map(place).max(),
            delayed_until_ms: ticket.names.iter().filter_map(|n| self.delayed_until(n)).max(),
        })
    }
}

/// This long from now; `None` if it is too far away to ever happen.
pub(super) fn later(now_ms: u64, ms: u64) -> Option<u64> {
    now_ms.checked_add(ms).filter(|at_ms| *at_ms != u64::MAX)
}
