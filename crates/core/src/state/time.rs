//! What is due when logical time moves.

use super::{State, Steps};
use crate::command::Tick;
use crate::effect::{Answer, Effect, Forced, How};
use crate::ids::Token;
use crate::text::LockName;
use std::sync::Arc;

/// What comes due, and when.
enum Due {
    /// A wait or a lease ends.
    Ticket(Token),
    /// The time that a revocation gave is over.
    Revocation(Token),
    /// A lock-delay ends.
    Delay(LockName),
    /// An object ends.
    Object(LockName),
}

impl State {
    /// Moves time, then does what is due, up to the bound of one command. What is left is done
    /// at the start of the next entries.
    pub(super) fn tick(&mut self, tick: Tick, effects: &mut Vec<Effect>) -> Answer {
        let clock = &mut self.data.clock;
        clock.now_ms = clock.now_ms.saturating_add(tick.elapsed_ms);
        (clock.wall_ms, clock.term) = (tick.wall_ms, tick.term);
        let mut steps = Steps(self.limits.steps_max);
        self.serve_unserved(&mut steps, effects);
        self.sweep(&mut steps, effects);
        while let Some((due_ms, due)) = self.first_due() {
            if due_ms > self.data.clock.now_ms || !steps.take() {
                break;
            }
            self.fall_due(due_ms, due, &mut steps, effects);
        }
        self.forget();
        Answer::Ticked
    }

    /// How many milliseconds from now the next tick is needed; 0 if work is left over.
    pub fn next_due_in_ms(&self) -> Option<u64> {
        if !self.index.sets.unserved.is_empty() || !self.index.sets.dying.is_empty() {
            return Some(0);
        }
        self.first_due().map(|(due_ms, _)| due_ms.saturating_sub(self.data.clock.now_ms))
    }

    /// The earliest of everything that is due; of those due together, waits and leases first.
    fn first_due(&self) -> Option<(u64, Due)> {
        let sets = &self.index.sets;
        let ticket = sets.due.first().map(|(ms, token)| (*ms, Due::Ticket(*token)));
        let revocation = sets.revocations.first().map(|(ms, token)| (*ms, Due::Revocation(*token)));
        let delay = sets.delays.first().map(|(ms, name)| (*ms, Due::Delay(name.clone())));
        let object = sets.objects_due.first().map(|(ms, name)| (*ms, Due::Object(name.clone())));
        [ticket, revocation, delay, object].into_iter().flatten().min_by_key(|(ms, _)| *ms)
    }

    fn fall_due(&mut self, due_ms: u64, due: Due, steps: &mut Steps, effects: &mut Vec<Effect>) {
        match due {
            Due::Ticket(token) => {
                let held = self.ticket(token).is_some_and(|ticket| ticket.held);
                let how = if held { How::Expired } else { How::TimedOut };
                self.index.sets.due.remove(&(due_ms, token));
                self.end(token, how, None, steps, effects);
            }
            Due::Revocation(token) => {
                self.index.sets.revocations.remove(&(due_ms, token));
                self.revocation_over(token, steps, effects);
            }
            Due::Delay(name) => {
                self.index.sets.delays.remove(&(due_ms, name.clone()));
                if let Some(slot) = self.lock_slot(&name) {
                    self.end_delay(slot);
                    self.serve(slot, steps, effects);
                    self.drop_lock_if_over(slot);
                }
            }
            Due::Object(name) => {
                self.index.sets.objects_due.remove(&(due_ms, name.clone()));
                self.remove_object(&name, effects);
            }
        }
    }

    fn revocation_over(&mut self, token: Token, steps: &mut Steps, effects: &mut Vec<Effect>) {
        let Some(slot) = self.ticket_slot(token) else { return };
        let asked = self.change_ticket(slot, |ticket| ticket.extra.as_mut()?.revocation.take());
        if let Some(asked) = asked.flatten().filter(|asked| asked.force) {
            let forced = Arc::new(Forced { by: asked.by, reason: asked.reason });
            self.end(token, How::Forced, Some(forced), steps, effects);
        }
    }

    fn serve_unserved(&mut self, steps: &mut Steps, effects: &mut Vec<Effect>) {
        while steps.0 > 0
            && let Some(name) = self.index.sets.unserved.pop_first()
        {
            if let Some(slot) = self.lock_slot(&name) {
                self.serve(slot, steps, effects);
            }
        }
    }

    /// Forgets old deaths and old request ids, a bounded number at a time: nobody waits for it.
    fn forget(&mut self) {
        let now_ms = self.data.clock.now_ms;
        for _ in 0..self.limits.steps_max {
            let oldest = self.index.sets.deaths.first_key_value().map(|(_, slot)| *slot);
            let oldest = oldest.and_then(|slot| self.data.locks.get(slot)?.death());
            let over_ms = oldest.map(|d| d.at_ms.saturating_add(self.limits.death_kept_ms));
            if over_ms.is_none_or(|over_ms| over_ms > now_ms) {
                break;
            }
            self.forget_oldest_death();
        }
        for _ in 0..self.limits.steps_max {
            let first = self.index.sets.forget.first_key_value();
            let Some(((_, _), slot)) = first.filter(|((ms, _), _)| *ms <= now_ms) else { break };
            let slot = *slot;
            self.forget_alone(slot);
        }
    }
}
