//! The one place where a ticket ends, whatever the reason.

use super::history::EventKind;
use super::records::{Death, Past, Ticket};
use super::{Lines, StepBudget};
use crate::containers::Slot;
use crate::effect::{Effect, EndReason, Ended, Ending, Forced};
use crate::ids::Token;
use crate::text::Label;
use crate::weight::Weight;
use std::sync::Arc;

impl Lines {
    /// Ends a ticket and serves those waiting for it. A holder that was never notified of its grant
    /// has done nothing: it leaves no ending, and the next holder learns of those before it.
    pub(super) fn end_ticket(
        &mut self,
        token: Token,
        how: EndReason,
        forced: Option<Arc<Forced>>,
        steps: &mut StepBudget,
        effects: &mut Vec<Effect>,
    ) {
        let Some(ticket) =
            self.take_out(token, how, forced, self.is_confirmed_holder(token), effects)
        else {
            return;
        };
        for slot in ticket.locks() {
            self.serve(slot, steps, effects);
            self.drop_lock_if_over(slot);
        }
    }

    /// Whether a holder may know that it is one.
    pub(super) fn is_confirmed_holder(&self, token: Token) -> bool {
        !self.ticket(token).is_some_and(Ticket::is_unconfirmed)
    }

    /// Ends the shared ticket of a reader that becomes the writer. Nobody needs to learn of this
    /// ending: the holder stays the same.
    pub(super) fn end_upgraded(&mut self, shared: Token, effects: &mut Vec<Effect>) {
        if self.ticket(shared).is_some_and(|ticket| ticket.held) {
            self.take_out(shared, EndReason::Released, None, false, effects);
        }
    }

    /// Ends a ticket without serving anyone; the caller drops locks of which nothing is left.
    pub(super) fn take_out(
        &mut self,
        token: Token,
        how: EndReason,
        forced: Option<Arc<Forced>>,
        leaves_past: bool,
        effects: &mut Vec<Effect>,
    ) -> Option<Ticket> {
        let slot = self.ticket_slot(token)?;
        let names = self.names_of(self.data.tickets.get(slot)?);
        self.index.numbers.remove(&self.data.tickets, slot);
        let ticket = self.data.tickets.remove(slot)?;
        self.weigh_change(ticket.weight(), Weight::NONE);
        self.index.sets.remove_ticket(&ticket);
        let label = self.label_of(&ticket);
        let mut delays = Vec::new();
        for slot in ticket.locks() {
            let Some(lock) = self.data.locks.get_mut(slot) else { continue };
            self.index.sets.lines.leave(slot, lock, token);
            if ticket.held {
                lock.holders = lock.holders.saturating_sub(1);
                let held_locks = &mut self.index.sets.held_locks;
                *held_locks = held_locks.saturating_sub(usize::from(lock.holders == 0));
                lock.exclusive &= lock.holders > 0;
                let name = lock.name.clone();
                let what = forced
                    .as_ref()
                    .map_or(EventKind::Ended(how), |forced| EventKind::Broken(forced.clone()));
                self.record(name, token, label.clone(), what);
                if leaves_past {
                    delays.extend(self.leave_past(
                        slot,
                        &ticket,
                        how,
                        label.as_ref(),
                        forced.as_ref(),
                    ));
                }
            }
            let Some(lock) = self.data.locks.get_mut(slot) else { continue };
            if lock.line_len == 0 {
                lock.forget_kind();
            }
        }
        self.settle_request(&ticket, how);
        let from_ms = if ticket.held { ticket.since_ms } else { ticket.joined_ms };
        effects.push(Effect::Ended(Ended {
            token,
            names,
            how,
            held: ticket.held,
            for_ms: self.data.clock.now_ms.saturating_sub(from_ms),
            session: ticket.session,
            label,
            note: ticket.note().cloned(),
            forced,
        }));
        effects.extend(delays);
        Some(ticket)
    }

    /// Records how a holder ended, for the next one. Returns the effect of a lock-delay, if one
    /// starts.
    fn leave_past(
        &mut self,
        slot: Slot,
        ticket: &Ticket,
        how: EndReason,
        label: Option<&Label>,
        forced: Option<&Arc<Forced>>,
    ) -> Option<Effect> {
        let lock = self.data.locks.get(slot)?;
        let mut delay = None;
        if lock.line_len > 0 || how.died() {
            let ending = self.ending(ticket, how, label, forced);
            if how.died() {
                self.mark_dead(slot, &ending);
                delay = self.delay(slot, ticket, &ending);
            }
            self.change_lock(slot, |lock| lock.past_mut().last = Some(ending));
        } else if lock.past.is_some() {
            self.change_lock(slot, |lock| lock.past_mut().last = None);
        }
        delay
    }

    pub(super) fn ending(
        &self,
        ticket: &Ticket,
        how: EndReason,
        label: Option<&Label>,
        forced: Option<&Arc<Forced>>,
    ) -> Arc<Ending> {
        Arc::new(Ending {
            how,
            token: ticket.number,
            label: label.cloned(),
            note: ticket.note().cloned(),
            at_ms: self.data.clock.now_ms,
            wall_ms: self.data.clock.wall_ms,
            forced: forced.cloned(),
        })
    }

    /// Marks a lock "needs recovery". A lock that is already marked keeps the first death that
    /// nobody has recovered from: the newest is reported as the last ending anyway. If there are
    /// too many marks, the oldest is dropped.
    pub(super) fn mark_dead(&mut self, slot: Slot, ending: &Arc<Ending>) {
        let first = self.unmark_dead(slot).unwrap_or_else(|| ending.clone());
        let number = self.next_in_sequence();
        let death = Death { ending: first, number, at_ms: ending.at_ms };
        self.change_lock(slot, |lock| lock.past_mut().death = Some(death));
        self.index.sets.deaths.insert(number, slot);
        if self.index.sets.deaths.len() > self.limits.deaths_max {
            self.forget_oldest_death();
        }
    }

    /// Removes the mark; the caller drops the lock if nothing else is left of it.
    pub(super) fn unmark_dead(&mut self, slot: Slot) -> Option<Arc<Ending>> {
        let death = self.change_lock(slot, |lock| lock.past.as_mut()?.death.take())??;
        self.index.sets.deaths.remove(&death.number);
        Some(death.ending)
    }

    pub(super) fn forget_oldest_death(&mut self) {
        let Some((_, slot)) = self.index.sets.deaths.first_key_value() else { return };
        let slot = *slot;
        self.unmark_dead(slot);
        self.drop_lock_if_over(slot);
    }

    fn delay(&mut self, slot: Slot, ticket: &Ticket, ending: &Arc<Ending>) -> Option<Effect> {
        let delay_ms = ticket.extra.as_ref().map_or(0, |extra| extra.lock_delay_ms);
        if delay_ms == 0 {
            return None;
        }
        let until_ms = self.data.clock.now_ms.saturating_add(delay_ms);
        let before_ms = self.data.locks.get(slot).and_then(|lock| lock.delayed_until_ms());
        if before_ms.is_some_and(|before_ms| before_ms >= until_ms) {
            return None;
        }
        self.end_delay(slot);
        let name = self.change_lock(slot, |lock| {
            lock.past_mut().delayed_until_ms = Some(until_ms);
            lock.name.clone()
        })?;
        self.index.sets.delays.insert((until_ms, name.clone()));
        Some(Effect::Delayed { name, until_ms, after: ending.clone() })
    }

    pub(super) fn end_delay(&mut self, slot: Slot) {
        let ended = self.change_lock(slot, |lock| {
            let until_ms = lock.past.as_mut()?.delayed_until_ms.take()?;
            Some((until_ms, lock.name.clone()))
        });
        if let Some(delay) = ended.flatten() {
            self.index.sets.delays.remove(&delay);
        }
    }

    /// Drops a lock of which nothing is left to remember.
    pub(super) fn drop_lock_if_over(&mut self, slot: Slot) {
        let Some(lock) = self.data.locks.get(slot) else { return };
        if let Some(past) = &lock.past {
            let forgotten =
                lock.line_len == 0 && past.death.is_none() && past.delayed_until_ms.is_none();
            if forgotten || **past == Past::default() {
                self.change_lock(slot, |lock| lock.past = None);
            }
        }
        let Some(lock) = self.data.locks.get(slot).filter(|lock| lock.is_over()) else { return };
        let weight = lock.weight();
        self.index.order.remove(slot, &lock.name);
        self.index.names.remove(&self.data.locks, slot);
        self.data.locks.remove(slot);
        self.weigh_change(weight, Weight::NONE);
    }
}
