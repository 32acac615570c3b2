//! What each write of a transaction comes to, as its key stands: a step, or a refusal.

use super::State;
use super::keys::is_a_text;
use super::objects::{self, Stored};
use super::records::{Ticket, Weight};
use crate::command::{Door, Lease, Mode};
use crate::effect::Forced;
use crate::ids::{NEVER_MS, Token};
use crate::refusal::{Refusal, Untouched};
use crate::store::Slot;
use crate::text::{Label, LockName, Reason};
use crate::transaction::{Expiry, KeyKind, Object, To, Write};
use std::sync::Arc;

/// What a write comes to, as the key stands.
pub(super) enum Step {
    Nothing,
    /// A ticket is drawn, after another one ended.
    Draw {
        label: Label,
        lease: Lease,
        after: Option<Old>,
    },
    /// The ticket stays, with another lease or another label.
    Keep {
        ticket: Slot,
        token: Token,
        lease: Option<Lease>,
        label: Option<Label>,
    },
    /// The ticket ends.
    End(Old),
    /// An object is written, after a ticket ended.
    Put {
        object: Arc<Object>,
        due_ms: u64,
        after: Option<Old>,
    },
    /// The object is gone.
    Remove,
}

/// A ticket that a step ends.
pub(super) struct Old {
    pub(super) token: Token,
    pub(super) forced: Option<Arc<Forced>>,
}

/// What a write finds under its name.
enum Found<'a> {
    Nothing,
    /// The only holder, exclusive and of the same door.
    Ticket(Slot, &'a Ticket),
    Object(&'a Stored),
}

/// How many tickets, objects and bytes a transaction adds, at most.
#[derive(Default)]
pub(super) struct Growth {
    pub(super) drawn: usize,
    pub(super) ended: usize,
    pub(super) put: usize,
    pub(super) removed: usize,
    pub(super) weight: Weight,
}

impl State {
    pub(super) fn step(
        &self,
        door: Door,
        write: &Write,
        growth: &mut Growth,
    ) -> Result<Step, Refusal> {
        let Write { name, to } = write;
        let step = match to {
            To::Text { value, expiry, fresh } => {
                self.text_step(door, name, value, *expiry, *fresh)?
            }
            To::Relabel { value, expiry } => self.relabel_step(door, name, value, *expiry)?,
            To::Object { object, expiry, fresh } => {
                self.object_step(door, name, object, *expiry, *fresh)?
            }
            To::Expiring(expiry) => match self.found(door, name)? {
                Found::Nothing => Step::Nothing,
                Found::Ticket(slot, ticket) => keep(slot, ticket, *expiry, None),
                Found::Object(stored) => Step::Put {
                    object: stored.object.clone(),
                    due_ms: self.due_at(*expiry, stored.due_ms),
                    after: None,
                },
            },
            To::Gone { forced } => match self.found(door, name)? {
                Found::Nothing => Step::Nothing,
                Found::Ticket(_, ticket) => {
                    let by = Label::parse(door.to_string());
                    let forced = forced.then(|| broken(by.ok(), "its key was deleted")).flatten();
                    Step::End(Old { token: ticket.number, forced })
                }
                Found::Object(_) => Step::Remove,
            },
        };
        growth.add(&step, name, self);
        Ok(step)
    }

    fn text_step(
        &self,
        door: Door,
        name: &LockName,
        value: &Label,
        expiry: Expiry,
        fresh: bool,
    ) -> Result<Step, Refusal> {
        let found = self.found(door, name)?;
        let due_ms = match &found {
            Found::Ticket(slot, ticket) if !fresh && self.text_of(ticket) == *value => {
                return Ok(keep(*slot, ticket, expiry, None));
            }
            Found::Object(stored) if !fresh => {
                return Err(Refusal::InUse { name: name.clone(), kind: stored.object.kind() });
            }
            Found::Ticket(_, ticket) if !fresh => ticket.due_ms,
            _ => NEVER_MS,
        };
        let after = match found {
            Found::Ticket(_, ticket) => Some(self.old(name, ticket, (!fresh).then_some(value))?),
            Found::Nothing | Found::Object(_) => None,
        };
        if after.is_none() && !self.free_for(name, Mode::Exclusive) {
            return Err(self.busy(name, None));
        }
        Ok(Step::Draw { label: value.clone(), lease: self.lease_for(expiry, due_ms), after })
    }

    fn relabel_step(
        &self,
        door: Door,
        name: &LockName,
        value: &Label,
        expiry: Expiry,
    ) -> Result<Step, Refusal> {
        match self.found(door, name)? {
            Found::Nothing => Err(Refusal::NotHeld { name: name.clone(), token: None, how: None }),
            Found::Object(stored) => {
                Err(Refusal::InUse { name: name.clone(), kind: stored.object.kind() })
            }
            Found::Ticket(slot, ticket) => {
                let label = (self.text_of(ticket) != *value).then(|| value.clone());
                Ok(keep(slot, ticket, expiry, label))
            }
        }
    }

    fn object_step(
        &self,
        door: Door,
        name: &LockName,
        object: &Object,
        expiry: Expiry,
        fresh: bool,
    ) -> Result<Step, Refusal> {
        let lock = self.lock_slot(name).and_then(|slot| self.data.locks.get(slot));
        let held = lock.is_some_and(|lock| lock.holders > 0);
        let line = lock.is_some_and(|lock| lock.line_len > 0);
        if line && !(held && fresh) {
            return Err(Refusal::InUse { name: name.clone(), kind: KeyKind::Text });
        }
        let (after, due_ms) = match self.found(door, name)? {
            Found::Ticket(_, ticket) => (Some(self.old(name, ticket, None)?), NEVER_MS),
            Found::Object(stored) if !fresh && stored.object.kind() != object.kind() => {
                return Err(Refusal::InUse { name: name.clone(), kind: stored.object.kind() });
            }
            Found::Object(_) if object.is_empty() => return Ok(Step::Remove),
            Found::Object(stored) => (None, if fresh { NEVER_MS } else { stored.due_ms }),
            Found::Nothing if lock.is_some_and(|lock| lock.delayed_until_ms().is_some()) => {
                return Err(self.busy(name, None));
            }
            Found::Nothing => (None, NEVER_MS),
        };
        Ok(match (object.is_empty(), after) {
            (true, None) => Step::Nothing,
            (true, Some(old)) => Step::End(old),
            (false, after) => {
                let due_ms = self.due_at(expiry, due_ms);
                Step::Put { object: Arc::new(object.clone()), due_ms, after }
            }
        })
    }

    /// What stands under a name, if the door may touch it.
    fn found(&self, door: Door, name: &LockName) -> Result<Found<'_>, Refusal> {
        let Some((_, lock, ticket)) = self.first_holder(name) else {
            return Ok(self.stored(name).map_or(Found::Nothing, Found::Object));
        };
        let why = if ticket.door != door {
            Untouched::OtherDoor
        } else if !is_a_text(lock, ticket) {
            Untouched::NotAText
        } else {
            let slot = self.ticket_slot(ticket.number);
            return Ok(slot.map_or(Found::Nothing, |slot| Found::Ticket(slot, ticket)));
        };
        Err(self.held_refusal(name, ticket, why))
    }

    fn held_refusal(&self, name: &LockName, ticket: &Ticket, why: Untouched) -> Refusal {
        let (token, label, door) = (ticket.number, self.label_of(ticket), ticket.door);
        Refusal::Held { name: name.clone(), token, label, door, why }
    }

    /// A ticket in whose place something else is put: only while nobody waits. It is broken if
    /// another text takes its place, else released.
    fn old(&self, name: &LockName, ticket: &Ticket, by: Option<&Label>) -> Result<Old, Refusal> {
        let lock = self.data.locks.get(ticket.lock);
        let waited_for = lock.is_some_and(|lock| lock.waiters() > 0);
        if waited_for {
            return Err(self.held_refusal(name, ticket, Untouched::WaitedFor));
        }
        let delays = ticket.extra.as_ref().is_some_and(|extra| extra.lock_delay_ms > 0);
        if delays && by.is_some() {
            return Err(self.held_refusal(name, ticket, Untouched::LockDelay));
        }
        if lock.is_some_and(|lock| lock.delayed_until_ms().is_some()) {
            return Err(self.busy(name, None));
        }
        let forced = by.and_then(|by| broken(Some(by.clone()), "its key was set to another value"));
        Ok(Old { token: ticket.number, forced })
    }

    fn due_at(&self, expiry: Expiry, before_ms: u64) -> u64 {
        match expiry {
            Expiry::Keep => before_ms,
            Expiry::Never => NEVER_MS,
            Expiry::AfterMs(ms) => self.data.clock.now_ms.saturating_add(ms),
        }
    }

    /// The lease of a ticket that is drawn where another one was due then.
    fn lease_for(&self, expiry: Expiry, before_ms: u64) -> Lease {
        match (expiry, before_ms) {
            (Expiry::AfterMs(ttl_ms), _) => Lease::Deadline { ttl_ms },
            (Expiry::Never, _) | (Expiry::Keep, NEVER_MS) => Lease::Permanent,
            (Expiry::Keep, before_ms) => {
                let left_ms = before_ms.saturating_sub(self.data.clock.now_ms);
                Lease::Deadline { ttl_ms: left_ms.max(1) }
            }
        }
    }
}

impl Growth {
    /// Counts what a step brings and what it takes away; bytes only as far as they grow.
    fn add(&mut self, step: &Step, name: &LockName, state: &State) {
        let old = |old: &Option<Old>| {
            let ticket = old.as_ref().and_then(|old| state.ticket(old.token));
            ticket.map_or(Weight::NONE, Ticket::weight)
        };
        let name_len = Weight::texts(name.as_bytes().len());
        let lock = if state.lock_slot(name).is_some() { name_len } else { Weight::NONE };
        let object = state.stored(name).map_or(Weight::NONE, Stored::weight);
        let text = |label: &Label| Weight::texts(label.as_bytes().len());
        let (before, after) = match step {
            Step::Nothing | Step::End(_) | Step::Remove => (Weight::NONE, Weight::NONE),
            Step::Draw { label, after, .. } => {
                (lock.and(object).and(old(after)), name_len.and(text(label)))
            }
            Step::Keep { token, label, .. } => {
                let before = state.ticket(*token).and_then(|ticket| ticket.label.as_ref());
                let before = before.map_or(Weight::NONE, text);
                label.as_ref().map_or((Weight::NONE, Weight::NONE), |label| (before, text(label)))
            }
            Step::Put { object: new, after, .. } => {
                (object.and(old(after)), objects::weight_of(name, new))
            }
        };
        self.weight = self.weight.and(after.without(before));
        let count = |counted: &mut usize, is: bool| {
            *counted = counted.saturating_add(usize::from(is));
        };
        let makes_way = match step {
            Step::Draw { after, .. } | Step::Put { after, .. } => after.is_some(),
            Step::End(_) => true,
            _ => false,
        };
        let gone = matches!(step, Step::Draw { .. } | Step::Put { .. } | Step::Remove);
        count(&mut self.drawn, matches!(step, Step::Draw { .. }));
        count(&mut self.ended, makes_way);
        count(&mut self.put, matches!(step, Step::Put { .. }));
        count(&mut self.removed, gone && state.stored(name).is_some());
    }
}

/// The ticket stays; its lease is set unless it is to be kept.
fn keep(slot: Slot, ticket: &Ticket, expiry: Expiry, label: Option<Label>) -> Step {
    let lease = match expiry {
        Expiry::Keep => None,
        Expiry::Never => Some(Lease::Permanent),
        Expiry::AfterMs(ttl_ms) => Some(Lease::Deadline { ttl_ms }),
    };
    Step::Keep { ticket: slot, token: ticket.number, lease, label }
}

/// Who broke a ticket, and why.
fn broken(by: Option<Label>, reason: &str) -> Option<Arc<Forced>> {
    let (by, reason) = (by?, Reason::parse(reason).ok()?);
    Some(Arc::new(Forced { by, reason }))
}
