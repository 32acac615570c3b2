//! Transactions: several keys are written at once, if what was read of them has not changed.
//!
//! Everything is decided before anything is done: each write becomes a [`Step`] or a refusal, and
//! only if all are steps are they taken. The steps do not get in each other's way: each key is
//! written once, and whoever a step serves stands in the line of its key, where no other step
//! puts anything.

use super::acquire::Blank;
use super::records::Ticket;
use super::steps::{Growth, Old, Step};
use super::{State, Steps};
use crate::command::{Door, Mode, Wait};
use crate::effect::{Answer, Effect, How};
use crate::history::What;
use crate::ids::Token;
use crate::refusal::{Bad, Bound, Refusal};
use crate::store::Slot;
use crate::text::{Label, LockName};
use crate::transaction::{Expiry, To, Transaction, Write};
use std::collections::BTreeSet;

impl State {
    pub(super) fn transact(
        &mut self,
        transaction: Transaction,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        self.check_transaction(&transaction)?;
        self.check_seen(&transaction)?;
        let Transaction { door, writes, publish, .. } = transaction;
        let mut steps = Vec::with_capacity(writes.len());
        let mut growth = Growth::default();
        for write in writes {
            let step = self.step(door, &write, &mut growth)?;
            steps.push((write.name, step));
        }
        self.check_growth(&growth)?;
        let tokens = self.take_steps(door, steps, effects);
        effects.extend(
            publish.into_iter().map(|(channel, message)| Effect::Published { channel, message }),
        );
        Ok(Answer::Transacted(tokens))
    }

    /// What can be told from the transaction alone.
    fn check_transaction(&self, transaction: &Transaction) -> Result<(), Refusal> {
        let Transaction { door, seen, writes, publish, .. } = transaction;
        let limits = &self.limits;
        let names: BTreeSet<&LockName> = writes.iter().map(|write| &write.name).collect();
        let expires_at_once = |write: &Write| write.to.expiry() == Some(Expiry::AfterMs(0));
        let too_large = |write: &Write| match &write.to {
            To::Object { object, .. } => {
                object.len() > limits.object_elements_max
                    || object.bytes() > limits.object_bytes_max
            }
            _ => false,
        };
        let bad = if *door == Door::Native {
            Bad::NativeTransaction
        } else if seen.len() > limits.keys_read_max {
            Bad::TooManyKeysRead
        } else if writes.len() > limits.keys_written_max {
            Bad::TooManyKeysWritten
        } else if publish.len() > limits.published_max {
            Bad::TooManyPublished
        } else if names.len() < writes.len() {
            Bad::SameNameTwice
        } else if writes.iter().any(expires_at_once) {
            Bad::NoTtl
        } else if writes.iter().any(too_large) {
            Bad::ObjectTooLarge
        } else if transaction.bytes() > limits.transaction_bytes_max {
            Bad::TransactionTooLarge
        } else {
            return Ok(());
        };
        Err(Refusal::BadRequest(bad))
    }

    /// Whether reading again would tell the same.
    fn check_seen(&self, transaction: &Transaction) -> Result<(), Refusal> {
        let differs = |(name, stamp): &&(LockName, _)| self.stamp(name) != *stamp;
        if let Some((name, _)) = transaction.seen.iter().find(differs) {
            return Err(Refusal::Changed { name: Some(name.clone()) });
        }
        if transaction.seen_all.is_some_and(|seen| seen != self.keys_changed()) {
            return Err(Refusal::Changed { name: None });
        }
        Ok(())
    }

    fn check_growth(&self, growth: &Growth) -> Result<(), Refusal> {
        let Growth { drawn, ended, put, removed, weight } = growth;
        let beyond = |len: usize, more: usize, less: usize, max| {
            more > less && len.saturating_add(more).saturating_sub(less) > max
        };
        if beyond(self.data.tickets.len(), *drawn, *ended, self.limits.tickets_max) {
            return Err(Refusal::Full(Bound::Tickets));
        }
        if beyond(self.data.objects.len(), *put, *removed, self.limits.objects_max) {
            return Err(Refusal::Full(Bound::Objects));
        }
        if self.counted(*weight) > 0 { self.check_bytes(*weight) } else { Ok(()) }
    }

    fn take_steps(
        &mut self,
        door: Door,
        writes: Vec<(LockName, Step)>,
        effects: &mut Vec<Effect>,
    ) -> Vec<Option<Token>> {
        // Each write may end a ticket and draw one; what is left may serve those who waited.
        let taken = writes.len().saturating_mul(2);
        let mut steps = Steps(self.limits.steps_max.saturating_sub(taken));
        let take = |(name, step)| self.take_step(door, name, step, &mut steps, effects);
        writes.into_iter().map(take).collect()
    }

    fn take_step(
        &mut self,
        door: Door,
        name: LockName,
        step: Step,
        steps: &mut Steps,
        effects: &mut Vec<Effect>,
    ) -> Option<Token> {
        match step {
            Step::Nothing => None,
            Step::Draw { label, lease, after } => {
                self.make_way(after, effects);
                self.remove_object(&name, effects);
                let label = Some(label);
                let (session, secret, mode, extra) = (None, None, Mode::Exclusive, None);
                let blank = Blank { session, secret, label, mode, door, lease, extra };
                self.stand(vec![name], blank, Wait::Try, None, effects)
            }
            Step::Keep { ticket, token, lease, label } => {
                if let Some(lease) = lease {
                    self.change_lease(ticket, lease);
                }
                if let Some(label) = label {
                    self.relabel(ticket, name, token, label, effects);
                }
                Some(token)
            }
            Step::End(Old { token, forced }) => {
                let how = if forced.is_some() { How::Forced } else { How::Released };
                self.end(token, how, forced, steps, effects);
                Some(token)
            }
            Step::Put { object, due_ms, after } => {
                self.make_way(after, effects);
                self.put_object(name, object, due_ms, effects);
                None
            }
            Step::Remove => {
                self.remove_object(&name, effects);
                None
            }
        }
    }

    /// Ends a ticket that nobody waits for.
    fn make_way(&mut self, old: Option<Old>, effects: &mut Vec<Effect>) {
        let Some(Old { token, forced }) = old else { return };
        let how = if forced.is_some() { How::Forced } else { How::Released };
        let ticket = self.take_out(token, how, forced, self.was_told(token), effects);
        for slot in ticket.iter().flat_map(Ticket::locks) {
            self.drop_lock_if_over(slot);
        }
    }

    fn relabel(
        &mut self,
        slot: Slot,
        name: LockName,
        token: Token,
        label: Label,
        effects: &mut Vec<Effect>,
    ) {
        let change = self.next_change();
        let kept = label.clone();
        self.change_ticket(slot, |ticket| {
            ticket.label = Some(kept);
            ticket.extra_mut().relabelled = change;
        });
        self.record(name.clone(), token, Some(label.clone()), What::Relabelled);
        effects.push(Effect::Relabelled { token, name, label });
    }
}

impl To {
    fn expiry(&self) -> Option<Expiry> {
        match self {
            Self::Text { expiry, .. }
            | Self::Relabel { expiry, .. }
            | Self::Object { expiry, .. }
            | Self::Expiring(expiry) => Some(*expiry),
            Self::Gone { .. } => None,
        }
    }
}
