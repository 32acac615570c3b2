//! Who is next, and the grant.
//!
//! Holders are always the first tickets of their line. The next ticket is served if there is room
//! for it besides them, in every line that it is in; until then nobody overtakes it.

use super::history::EventKind;
use super::records::{Lock, Ticket};
use super::{Lines, StepBudget};
use crate::command::Lease;
use crate::containers::Slot;
use crate::effect::{Effect, EndReason, Grant, PriorEndings, TicketStatus};
use crate::ids::{NEVER_MS, Token};
use std::sync::Arc;

impl Lines {
    /// Serves every ticket in this line whose turn it is, and in the lines that this moves forward.
    pub(super) fn serve(&mut self, slot: Slot, steps: &mut StepBudget, effects: &mut Vec<Effect>) {
        let mut moved = Vec::new();
        self.serve_line(slot, &mut moved, steps, effects);
        while let Some(slot) = moved.pop() {
            self.serve_line(slot, &mut moved, steps, effects);
        }
    }

    fn serve_line(
        &mut self,
        slot: Slot,
        moved: &mut Vec<Slot>,
        steps: &mut StepBudget,
        effects: &mut Vec<Effect>,
    ) {
        while let Some(token) = self.next_waiter(slot).filter(|token| self.may_serve(*token)) {
            if !steps.take() {
                return self.leave_unserved(token);
            }
            self.grant(token, moved, effects);
        }
    }

    /// Records, in all of its lines, that a ticket could be served and was not: what is recorded
    /// must not depend on how it was reached, because a replica that loads a snapshot computes it
    /// from scratch.
    fn leave_unserved(&mut self, token: Token) {
        let slots: Vec<Slot> =
            self.ticket(token).into_iter().flat_map(|ticket| ticket.locks()).collect();
        for lock in slots.into_iter().filter_map(|slot| self.data.locks.get(slot)) {
            self.index.sets.unserved.insert(lock.name.clone());
        }
    }

    pub(super) fn next_waiter(&self, slot: Slot) -> Option<Token> {
        let lock = self.data.locks.get(slot)?;
        self.index.sets.lines.next_waiter(slot, lock)
    }

    /// Whether it is a waiter's turn: its session is alive, and it is next and has room in all of
    /// its lines.
    pub(super) fn may_serve(&self, token: Token) -> bool {
        let Some(ticket) = self.ticket(token) else { return false };
        let alive =
            ticket.session.is_none_or(|id| self.session(id).is_some_and(|s| s.dying.is_none()));
        alive
            && ticket.locks().all(|slot| {
                self.data.locks.get(slot).is_some_and(|lock| {
                    self.next_waiter(slot) == Some(token) && self.has_room(lock, ticket)
                })
            })
    }

    /// Whether a lock could serve this ticket if it were next.
    pub(super) fn has_room(&self, lock: &Lock, ticket: &Ticket) -> bool {
        if lock.delayed_until_ms().is_some() {
            return false;
        }
        let only_its_own_shared =
            lock.holders == 1 && lock.head() == ticket.upgrades() && lock.head().is_some();
        lock.has_room_for(ticket.mode) || only_its_own_shared
    }

    pub(super) fn grant(&mut self, token: Token, moved: &mut Vec<Slot>, effects: &mut Vec<Effect>) {
        let Some(slot) = self.ticket_slot(token) else { return };
        if let Some(shared) = self.data.tickets.get(slot).and_then(Ticket::upgrades) {
            self.end_upgraded(shared, effects);
        }
        let Some(ticket) = self.data.tickets.get(slot) else { return };
        let after = self.after(ticket);
        let label = self.label_of(ticket);
        let (first, more) =
            (ticket.lock, ticket.extra.as_ref().map_or(Vec::new(), |e| e.more_locks.clone()));
        let mode = ticket.mode;
        self.index.sets.remove_ticket(ticket);
        let now_ms = self.data.clock.now_ms;
        let label_to_keep = label.clone();
        self.change_ticket(slot, |ticket| {
            ticket.held = true;
            ticket.since_ms = now_ms;
            ticket.due_ms = match ticket.lease {
                Lease::Deadline { ttl_ms } | Lease::Unconfirmed { ttl_ms } => {
                    now_ms.saturating_add(ttl_ms)
                }
                Lease::Session | Lease::Permanent => NEVER_MS,
            };
            if ticket.lease != Lease::Session && ticket.label.is_none() {
                // It may outlive its session, and must keep its label then.
                ticket.label = label_to_keep;
            }
            if after.is_some() {
                ticket.extra_mut().after = after;
            }
            if let Some(extra) = &mut ticket.extra {
                extra.claims = Vec::new();
                extra.upgrades = None;
            }
        });
        for lock_slot in std::iter::once(first).chain(more.iter().copied()) {
            let Some(lock) = self.data.locks.get_mut(lock_slot) else { continue };
            let held_locks = &mut self.index.sets.held_locks;
            *held_locks = held_locks.saturating_add(usize::from(lock.holders == 0));
            lock.holders = lock.holders.saturating_add(1);
            lock.last_served = token;
            lock.exclusive = mode == crate::command::Mode::Exclusive;
            let name = lock.name.clone();
            self.record(name, token, label.clone(), EventKind::Granted);
        }
        // Whichever line led here, all of its lines have moved forward.
        moved.push(first);
        moved.extend(more);
        let Some(ticket) = self.data.tickets.get(slot) else { return };
        self.index.sets.add_ticket(ticket);
        effects.push(Effect::Granted(self.grant_of(ticket)));
    }

    /// What the next holder learns about earlier ones.
    fn after(&self, ticket: &Ticket) -> Option<Arc<[PriorEndings]>> {
        let pasts = || ticket.locks().filter_map(|slot| self.data.locks.get(slot));
        if pasts().all(|lock| lock.past.is_none()) {
            return None;
        }
        let after: Arc<[PriorEndings]> = pasts()
            .filter_map(|lock| {
                let past = lock.past.as_ref()?;
                let recover = past.death.as_ref().map(|death| death.ending.clone());
                let any = past.last.is_some() || recover.is_some();
                any.then(|| PriorEndings {
                    name: lock.name.clone(),
                    last: past.last.clone(),
                    recover,
                })
            })
            .collect();
        (!after.is_empty()).then_some(after)
    }

    pub(super) fn grant_of(&self, ticket: &Ticket) -> Grant {
        Grant {
            token: ticket.number,
            names: self.names_of(ticket),
            mode: ticket.mode,
            lease: ticket.lease,
            session: ticket.session,
            label: self.label_of(ticket),
            note: ticket.note().cloned(),
            secret: ticket.secret,
            waited_ms: ticket.since_ms.saturating_sub(ticket.joined_ms),
            after: ticket.after().cloned(),
        }
    }

    /// A ticket's current state; one that no longer exists counts as released.
    pub(crate) fn ticket_status(&self, token: Token) -> TicketStatus {
        let Some(ticket) = self.ticket(token) else {
            return TicketStatus::Over { token, how: EndReason::Released };
        };
        if ticket.held {
            return TicketStatus::Held(self.grant_of(ticket));
        }
        let locks = || ticket.locks().filter_map(|slot| Some((slot, self.data.locks.get(slot)?)));
        let place = locks().map(|(slot, lock)| self.place_in(slot, lock, token)).max();
        let delayed_until_ms = locks().filter_map(|(_, lock)| lock.delayed_until_ms()).max();
        TicketStatus::Waiting {
            token,
            secret: ticket.secret,
            place: place.flatten(),
            delayed_until_ms,
        }
    }

    /// 1 for the next to be served. For a place far back, only the ticket that has just joined gets
    /// one: counting up to it would cost more than it is worth.
    fn place_in(&self, slot: Slot, lock: &Lock, token: Token) -> Option<usize> {
        let places = self.index.sets.lines.waiters(slot, lock).take(self.limits.steps_max);
        if self.index.sets.lines.iter(slot, lock).next_back() == Some(token) {
            return Some(lock.waiters() as usize);
        }
        places.zip(1..).find(|(waiter, _)| *waiter == token).map(|(_, place)| place)
    }
}
