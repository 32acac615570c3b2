//! What is due when logical time moves.

use super::{Lines, StepBudget};
use crate::command::Tick;
use crate::effect::{Effect, EndReason, Forced};
use crate::ids::Token;
use crate::text::LockName;
use std::sync::Arc;

/// Something that comes due.
enum Due {
    /// A wait or a lease ends.
    Ticket(Token),
    /// The time given by a revocation is over.
    Revocation(Token),
    /// A lock-delay ends.
    Delay(LockName),
}

impl Lines {
    pub(crate) fn move_time(&mut self, tick: Tick) {
        let clock = &mut self.data.clock;
        clock.now_ms = clock.now_ms.saturating_add(tick.elapsed_ms);
        (clock.wall_ms, clock.term) = (tick.wall_ms, tick.term);
    }

    /// Continues with what earlier commands left over at their bound.
    pub(crate) fn finish_pending(&mut self, steps: &mut StepBudget, effects: &mut Vec<Effect>) {
        self.serve_unserved(steps, effects);
        self.sweep(steps, effects);
    }

    /// Whether anything is left over.
    pub(crate) fn is_behind(&self) -> bool {
        !self.index.sets.unserved.is_empty() || !self.index.sets.dying.is_empty()
    }

    /// When the next thing is due, in logical time.
    pub(crate) fn first_due_ms(&self) -> Option<u64> {
        let sets = &self.index.sets;
        let ticket = sets.due.first().map(|(ms, _)| *ms);
        let revocation = sets.revocations.first().map(|(ms, _)| *ms);
        let delay = sets.delays.first().map(|(ms, _)| *ms);
        [ticket, revocation, delay].into_iter().flatten().min()
    }

    /// Does the next thing that is due.
    pub(crate) fn run_first_due(&mut self, steps: &mut StepBudget, effects: &mut Vec<Effect>) {
        if let Some((due_ms, due)) = self.first_due() {
            self.fall_due(due_ms, due, steps, effects);
        }
    }

    /// The earliest thing that is due; at the same time, waits and leases come first.
    fn first_due(&self) -> Option<(u64, Due)> {
        let sets = &self.index.sets;
        let ticket = sets.due.first().map(|(ms, token)| (*ms, Due::Ticket(*token)));
        let revocation = sets.revocations.first().map(|(ms, token)| (*ms, Due::Revocation(*token)));
        let delay = sets.delays.first().map(|(ms, name)| (*ms, Due::Delay(name.clone())));
        [ticket, revocation, delay].into_iter().flatten().min_by_key(|(ms, _)| *ms)
    }

    fn fall_due(
        &mut self,
        due_ms: u64,
        due: Due,
        steps: &mut StepBudget,
        effects: &mut Vec<Effect>,
    ) {
        match due {
            Due::Ticket(token) => {
                let held = self.ticket(token).is_some_and(|ticket| ticket.held);
                let how = if held { EndReason::Expired } else { EndReason::TimedOut };
                self.index.sets.due.remove(&(due_ms, token));
                self.end_ticket(token, how, None, steps, effects);
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
        }
    }

    fn revocation_over(&mut self, token: Token, steps: &mut StepBudget, effects: &mut Vec<Effect>) {
        let Some(slot) = self.ticket_slot(token) else { return };
        let asked = self.change_ticket(slot, |ticket| ticket.extra.as_mut()?.revocation.take());
        if let Some(asked) = asked.flatten().filter(|asked| asked.force) {
            let forced = Arc::new(Forced { by: asked.by, reason: asked.reason });
            self.end_ticket(token, EndReason::Forced, Some(forced), steps, effects);
        }
    }

    fn serve_unserved(&mut self, steps: &mut StepBudget, effects: &mut Vec<Effect>) {
        while steps.0 > 0
            && let Some(name) = self.index.sets.unserved.pop_first()
        {
            if let Some(slot) = self.lock_slot(&name) {
                self.serve(slot, steps, effects);
            }
        }
    }

    /// Forgets old deaths and request ids, a bounded number at a time: this is not urgent.
    pub(crate) fn forget(&mut self) {
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
