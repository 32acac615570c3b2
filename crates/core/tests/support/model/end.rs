//! The end of a ticket, and what it leaves behind.

use super::records::{Death, OverTicket, Past};
use super::{Model, Ticket};
use holdfast_core::{Effect, EndReason, Ended, Ending, EventKind, Forced, LockName, Token};
use std::sync::Arc;

impl Model {
    pub(super) fn past(&self, name: &LockName) -> Option<&Past> {
        self.pasts.iter().find(|past| past.name == *name)
    }

    pub(super) fn past_mut(&mut self, name: &LockName) -> &mut Past {
        let at = self.pasts.iter().position(|past| past.name == *name);
        let at = at.unwrap_or_else(|| {
            let name = name.clone();
            self.pasts.push(Past { name, last: None, death: None, delayed_until_ms: None });
            self.pasts.len() - 1
        });
        &mut self.pasts[at]
    }

    /// Ends a ticket and serves the tickets that are next.
    pub(super) fn end(&mut self, token: Token, how: EndReason, forced: Option<&Forced>) {
        self.leave(token, how, forced, true);
        self.serve();
    }

    /// Ends a ticket without serving any yet.
    pub(super) fn leave(
        &mut self,
        token: Token,
        how: EndReason,
        forced: Option<&Forced>,
        leaves_ending: bool,
    ) {
        let Some(at) = self.tickets.iter().position(|ticket| ticket.token == token) else { return };
        let ticket = self.tickets.remove(at);
        self.over.push(OverTicket { token, how, at_ms: self.now_ms });
        let forced = forced.cloned().map(Arc::new);
        let from_ms = if ticket.held { ticket.granted_ms } else { ticket.joined_ms };
        self.effects.push(Effect::Ended(Ended {
            token,
            names: ticket.shown_names(),
            how,
            held: ticket.held,
            for_ms: self.now_ms - from_ms,
            session: ticket.session,
            label: self.label_of(&ticket),
            note: ticket.note.clone(),
            forced: forced.clone(),
        }));
        if ticket.held {
            self.happened(
                &ticket,
                &forced.clone().map_or(EventKind::Ended(how), EventKind::Broken),
            );
        }
        if ticket.held && leaves_ending && ticket.is_confirmed_holder() {
            self.leave_ending(&ticket, how, forced);
        }
        self.forget_pasts();
    }

    /// What a holder leaves for the next one.
    fn leave_ending(&mut self, ticket: &Ticket, how: EndReason, forced: Option<Arc<Forced>>) {
        let ending = Arc::new(Ending {
            how,
            token: ticket.token,
            label: self.label_of(ticket),
            note: ticket.note.clone(),
            at_ms: self.now_ms,
            wall_ms: self.wall_ms,
            forced,
        });
        for name in &ticket.names {
            // A holder that did not release died.
            if how != EndReason::Released {
                self.leave_death(name, ticket.lock_delay_ms, &ending);
            } else {
                let line_is_occupied = !self.line(name).is_empty();
                self.past_mut(name).last = line_is_occupied.then(|| ending.clone());
            }
        }
    }

    fn leave_death(&mut self, name: &LockName, delay_ms: u64, ending: &Arc<Ending>) {
        self.deaths_drawn += 1;
        let number = self.deaths_drawn;
        let until_ms = self.now_ms.saturating_add(delay_ms);
        let past = self.past_mut(name);
        past.last = Some(ending.clone());
        // The first death that nobody has recovered from is the one to recover from.
        let first = past.death.take().map_or_else(|| ending.clone(), |death| death.ending);
        past.death = Some(Death { number, ending: first, at_ms: ending.at_ms });
        if delay_ms > 0 && past.delayed_until_ms.is_none_or(|before| before < until_ms) {
            past.delayed_until_ms = Some(until_ms);
            let (name, after) = (name.clone(), ending.clone());
            self.effects.push(Effect::Delayed { name, until_ms, after });
        }
        self.drop_oldest_deaths();
    }

    fn drop_oldest_deaths(&mut self) {
        while self.deaths() > self.limits.deaths_max {
            let dead = self.pasts.iter_mut().filter(|past| past.death.is_some());
            let oldest = dead.min_by_key(|past| past.death.as_ref().map(|death| death.number));
            if let Some(past) = oldest {
                past.death = None;
            }
        }
    }

    pub(super) fn deaths(&self) -> usize {
        self.pasts.iter().filter(|past| past.death.is_some()).count()
    }

    /// Forgets names without tickets, a death or a delay.
    pub(super) fn forget_pasts(&mut self) {
        let standing: Vec<LockName> = self.tickets.iter().flat_map(|t| t.names.clone()).collect();
        self.pasts.retain(|past| {
            past.death.is_some() || past.delayed_until_ms.is_some() || standing.contains(&past.name)
        });
    }
}
