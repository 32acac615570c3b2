//! Transactions: write several keys at once, if what was read has not changed.
//!
//! Everything is decided before anything is done: each write becomes a [`Step`] or a refusal, and
//! the steps are taken only if nothing is refused. Steps don't interfere: each key is written once,
//! and a step serves only tickets in the line of its own key, which no other step writes.

use super::Keys;
use super::steps::{Growth, ReplacedTicket, Step};
use crate::command::Door;
use crate::effect::{Answer, Effect};
use crate::ids::Token;
use crate::limits::Limits;
use crate::lines::{StepBudget, StoreAccess, TicketSpec};
use crate::refusal::{Bound, InvalidField, Refusal};
use crate::text::LockName;
use crate::transaction::{Expiry, Transaction, Write, WriteOp};
use std::collections::BTreeSet;

impl Keys {
    pub(crate) fn transact(
        &mut self,
        transaction: Transaction,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        check_transaction(&transaction, lines.limits())?;
        self.check_seen(&transaction, lines)?;
        let Transaction { door, writes, publish, .. } = transaction;
        let mut steps = Vec::with_capacity(writes.len());
        let mut growth = Growth::default();
        for write in writes {
            let step = self.step(door, &write, lines, &mut growth)?;
            steps.push((write.name, step));
        }
        self.check_growth(&growth, lines)?;
        let tokens = self.take_steps(door, steps, lines, effects);
        effects.extend(
            publish.into_iter().map(|(channel, message)| Effect::Published { channel, message }),
        );
        Ok(Answer::Transacted(tokens))
    }

    /// Whether reading again would give the same result.
    fn check_seen(
        &self,
        transaction: &Transaction,
        lines: &impl StoreAccess,
    ) -> Result<(), Refusal> {
        let differs = |(name, stamp): &&(LockName, _)| self.stamp(name, lines) != *stamp;
        if let Some((name, _)) = transaction.seen.iter().find(differs) {
            return Err(Refusal::Changed { name: Some(name.clone()) });
        }
        if transaction.seen_all.is_some_and(|seen| seen != self.keys_changed(lines)) {
            return Err(Refusal::Changed { name: None });
        }
        Ok(())
    }

    fn check_growth(&self, growth: &Growth, lines: &impl StoreAccess) -> Result<(), Refusal> {
        let Growth { drawn, ended, put, removed, weight } = growth;
        let beyond = |len: usize, more: usize, less: usize, max| {
            more > less && len.saturating_add(more).saturating_sub(less) > max
        };
        if beyond(lines.tickets(), *drawn, *ended, lines.limits().tickets_max) {
            return Err(Refusal::Full(Bound::Tickets));
        }
        if beyond(self.data.objects.len(), *put, *removed, lines.limits().objects_max) {
            return Err(Refusal::Full(Bound::Objects));
        }
        lines.check_growth(*weight)
    }

    fn take_steps(
        &mut self,
        door: Door,
        writes: Vec<(LockName, Step)>,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) -> Vec<Option<Token>> {
        // Each write may end a ticket and draw one; the rest of the budget is for serving waiters.
        let taken = writes.len().saturating_mul(2);
        let mut steps = StepBudget::new(lines.limits().steps_max.saturating_sub(taken));
        let take = |(name, step)| self.take_step(door, name, step, lines, &mut steps, effects);
        writes.into_iter().map(take).collect()
    }

    fn take_step(
        &mut self,
        door: Door,
        name: LockName,
        step: Step,
        lines: &mut impl StoreAccess,
        steps: &mut StepBudget,
        effects: &mut Vec<Effect>,
    ) -> Option<Token> {
        match step {
            Step::Nothing => None,
            Step::Draw { label, lease, after } => {
                make_way(after, lines, effects);
                self.remove_object(&name, lines, effects);
                lines.draw(name, TicketSpec::known_by_label(door, label, lease), effects)
            }
            Step::Keep { token, lease, label } => {
                if let Some(lease) = lease {
                    lines.set_lease(token, lease);
                }
                if let Some(label) = label {
                    let change = self.next_change();
                    lines.relabel(token, name, label, change, effects);
                }
                Some(token)
            }
            Step::End(ReplacedTicket { token, forced }) => {
                lines.end(token, forced, steps, effects);
                Some(token)
            }
            Step::Put { object, due_ms, after } => {
                make_way(after, lines, effects);
                self.put_object(name, object, due_ms, lines, effects);
                None
            }
            Step::Remove => {
                self.remove_object(&name, lines, effects);
                None
            }
        }
    }
}

/// Ends a ticket that has no waiters behind it.
fn make_way(old: Option<ReplacedTicket>, lines: &mut impl StoreAccess, effects: &mut Vec<Effect>) {
    if let Some(ReplacedTicket { token, forced }) = old {
        lines.make_way(token, forced, effects);
    }
}

/// Checks what can be decided from the transaction alone.
fn check_transaction(transaction: &Transaction, limits: &Limits) -> Result<(), Refusal> {
    let Transaction { door, seen, writes, publish, .. } = transaction;
    let names: BTreeSet<&LockName> = writes.iter().map(|write| &write.name).collect();
    let expires_at_once = |write: &Write| write.to.expiry() == Some(Expiry::AfterMs(0));
    let too_large = |write: &Write| match &write.to {
        WriteOp::Object { object, .. } => {
            object.len() > limits.object_elements_max || object.bytes() > limits.object_bytes_max
        }
        _ => false,
    };
    let bad = if *door == Door::Native {
        InvalidField::NativeTransaction
    } else if seen.len() > limits.keys_read_max {
        InvalidField::TooManyKeysRead
    } else if writes.len() > limits.keys_written_max {
        InvalidField::TooManyKeysWritten
    } else if publish.len() > limits.published_max {
        InvalidField::TooManyPublished
    } else if names.len() < writes.len() {
        InvalidField::SameNameTwice
    } else if writes.iter().any(expires_at_once) {
        InvalidField::NoTtl
    } else if writes.iter().any(too_large) {
        InvalidField::ObjectTooLarge
    } else if transaction.bytes() > limits.transaction_bytes_max {
        InvalidField::TransactionTooLarge
    } else {
        return Ok(());
    };
    Err(Refusal::BadRequest(bad))
}

impl WriteOp {
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
