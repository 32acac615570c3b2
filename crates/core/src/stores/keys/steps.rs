//! What each write of a transaction amounts to, given the current content of its key: a step or a
//! refusal.

use super::Keys;
use super::objects::{self, StoredObject};
use super::questions::text_of;
use crate::command::{Door, Lease, Mode};
use crate::effect::Forced;
use crate::ids::{NEVER_MS, Token};
use crate::lines::{HolderView, StoreAccess};
use crate::refusal::{Refusal, Untouched};
use crate::text::{Label, LockName, Reason};
use crate::transaction::{Expiry, KeyKind, Object, Write, WriteOp};
use crate::weight::Weight;
use std::sync::Arc;

/// What a write amounts to, given the current content of its key.
pub(super) enum Step {
    Nothing,
    /// A ticket is drawn, after another one has ended.
    Draw {
        label: Label,
        lease: Lease,
        after: Option<ReplacedTicket>,
    },
    /// The ticket stays, with a new lease or label.
    Keep {
        token: Token,
        lease: Option<Lease>,
        label: Option<Label>,
    },
    /// The ticket ends.
    End(ReplacedTicket),
    /// An object is written, after a ticket has ended.
    Put {
        object: Arc<Object>,
        due_ms: u64,
        after: Option<ReplacedTicket>,
    },
    /// The object is removed.
    Remove,
}

/// A ticket that a step ends.
pub(super) struct ReplacedTicket {
    pub(super) token: Token,
    pub(super) forced: Option<Arc<Forced>>,
}

/// The current content of a write's key.
enum Found<'a> {
    Nothing,
    /// The only holder, exclusive and of the same door.
    Ticket(HolderView<'a>),
    Object(&'a StoredObject),
}

/// The most tickets, objects and bytes that a transaction adds.
#[derive(Default)]
pub(super) struct Growth {
    pub(super) drawn: usize,
    pub(super) ended: usize,
    pub(super) put: usize,
    pub(super) removed: usize,
    pub(super) weight: Weight,
}

impl Keys {
    pub(super) fn step(
        &self,
        door: Door,
        write: &Write,
        lines: &impl StoreAccess,
        growth: &mut Growth,
    ) -> Result<Step, Refusal> {
        let Write { name, to } = write;
        let step = match to {
            WriteOp::Text { value, expiry, fresh } => {
                self.text_step(door, name, value, *expiry, *fresh, lines)?
            }
            WriteOp::Relabel { value, expiry } => {
                relabel_step(self.found(door, name, lines)?, name, value, *expiry)?
            }
            WriteOp::Object { object, expiry, fresh } => {
                self.object_step(door, name, object, *expiry, *fresh, lines)?
            }
            WriteOp::Expiring(expiry) => match self.found(door, name, lines)? {
                Found::Nothing => Step::Nothing,
                Found::Ticket(holder) => keep(&holder, *expiry, None),
                Found::Object(stored) => Step::Put {
                    object: stored.object.clone(),
                    due_ms: due_at(*expiry, stored.due_ms, lines),
                    after: None,
                },
            },
            WriteOp::Gone { forced } => match self.found(door, name, lines)? {
                Found::Nothing => Step::Nothing,
                Found::Ticket(holder) => {
                    let by = Label::parse(door.to_string());
                    let forced = forced.then(|| broken(by.ok(), "its key was deleted")).flatten();
                    Step::End(ReplacedTicket { token: holder.token(), forced })
                }
                Found::Object(_) => Step::Remove,
            },
        };
        growth.add(&step, name, self.stored(name), lines);
        Ok(step)
    }

    fn text_step(
        &self,
        door: Door,
        name: &LockName,
        value: &Label,
        expiry: Expiry,
        fresh: bool,
        lines: &impl StoreAccess,
    ) -> Result<Step, Refusal> {
        let found = self.found(door, name, lines)?;
        let due_ms = match &found {
            Found::Ticket(holder) if !fresh && text_of(holder) == *value => {
                return Ok(keep(holder, expiry, None));
            }
            Found::Object(stored) if !fresh => {
                return Err(Refusal::InUse { name: name.clone(), kind: stored.object.kind() });
            }
            Found::Ticket(holder) if !fresh => holder.due_ms().unwrap_or(NEVER_MS),
            _ => NEVER_MS,
        };
        let after = match found {
            Found::Ticket(holder) => Some(old(name, &holder, (!fresh).then_some(value), lines)?),
            Found::Nothing | Found::Object(_) => None,
        };
        if after.is_none() && !lines.is_free(name, Mode::Exclusive) {
            return Err(lines.busy(name));
        }
        Ok(Step::Draw { label: value.clone(), lease: lease_for(expiry, due_ms, lines), after })
    }

    fn object_step(
        &self,
        door: Door,
        name: &LockName,
        object: &Object,
        expiry: Expiry,
        fresh: bool,
        lines: &impl StoreAccess,
    ) -> Result<Step, Refusal> {
        let lock = lines.line(name);
        let held = lock.is_some_and(|lock| lock.holding() > 0);
        let line = lock.is_some_and(|lock| lock.has_tickets());
        if line && !(held && fresh) {
            return Err(Refusal::InUse { name: name.clone(), kind: KeyKind::Text });
        }
        let (after, due_ms) = match self.found(door, name, lines)? {
            Found::Ticket(holder) => (Some(old(name, &holder, None, lines)?), NEVER_MS),
            Found::Object(stored) if !fresh && stored.object.kind() != object.kind() => {
                return Err(Refusal::InUse { name: name.clone(), kind: stored.object.kind() });
            }
            Found::Object(_) if object.is_empty() => return Ok(Step::Remove),
            Found::Object(stored) => (None, if fresh { NEVER_MS } else { stored.due_ms }),
            Found::Nothing if lock.is_some_and(|lock| lock.is_delayed()) => {
                return Err(lines.busy(name));
            }
            Found::Nothing => (None, NEVER_MS),
        };
        Ok(match (object.is_empty(), after) {
            (true, None) => Step::Nothing,
            (true, Some(old)) => Step::End(old),
            (false, after) => {
                let due_ms = due_at(expiry, due_ms, lines);
                Step::Put { object: Arc::new(object.clone()), due_ms, after }
            }
        })
    }

    /// The content of a name, if the door may change it.
    fn found<'a>(
        &'a self,
        door: Door,
        name: &LockName,
        lines: &'a impl StoreAccess,
    ) -> Result<Found<'a>, Refusal> {
        let Some(holder) = lines.holder(name) else {
            return Ok(self.stored(name).map_or(Found::Nothing, Found::Object));
        };
        let why = if holder.door() != door {
            Untouched::OtherDoor
        } else if !holder.is_known_by_label() {
            Untouched::NotAText
        } else {
            return Ok(Found::Ticket(holder));
        };
        Err(held_refusal(name, &holder, why))
    }
}

fn relabel_step(
    found: Found<'_>,
    name: &LockName,
    value: &Label,
    expiry: Expiry,
) -> Result<Step, Refusal> {
    match found {
        Found::Nothing => Err(Refusal::NotHeld { name: name.clone(), token: None, how: None }),
        Found::Object(stored) => {
            Err(Refusal::InUse { name: name.clone(), kind: stored.object.kind() })
        }
        Found::Ticket(holder) => {
            let label = (text_of(&holder) != *value).then(|| value.clone());
            Ok(keep(&holder, expiry, label))
        }
    }
}

fn held_refusal(name: &LockName, holder: &HolderView<'_>, why: Untouched) -> Refusal {
    let (token, label, door) = (holder.token(), holder.label(), holder.door());
    Refusal::Held { name: name.clone(), token, label, door, why }
}

/// A ticket to be replaced, which is possible only without waiters. It is broken if another text
/// takes its place, otherwise released.
fn old(
    name: &LockName,
    holder: &HolderView<'_>,
    by: Option<&Label>,
    lines: &impl StoreAccess,
) -> Result<ReplacedTicket, Refusal> {
    let waited_for = holder.line().waiting() > 0;
    if waited_for {
        return Err(held_refusal(name, holder, Untouched::WaitedFor));
    }
    if holder.has_lock_delay() && by.is_some() {
        return Err(held_refusal(name, holder, Untouched::LockDelay));
    }
    if holder.line().is_delayed() {
        return Err(lines.busy(name));
    }
    let forced = by.and_then(|by| broken(Some(by.clone()), "its key was set to another value"));
    Ok(ReplacedTicket { token: holder.token(), forced })
}

fn due_at(expiry: Expiry, before_ms: u64, lines: &impl StoreAccess) -> u64 {
    match expiry {
        Expiry::Keep => before_ms,
        Expiry::Never => NEVER_MS,
        Expiry::AfterMs(ms) => lines.now_ms().saturating_add(ms),
    }
}

/// The lease of a new ticket in place of one that was due at `before_ms`.
fn lease_for(expiry: Expiry, before_ms: u64, lines: &impl StoreAccess) -> Lease {
    match (expiry, before_ms) {
        (Expiry::AfterMs(ttl_ms), _) => Lease::Deadline { ttl_ms },
        (Expiry::Never, _) | (Expiry::Keep, NEVER_MS) => Lease::Permanent,
        (Expiry::Keep, before_ms) => {
            let left_ms = before_ms.saturating_sub(lines.now_ms());
            Lease::Deadline { ttl_ms: left_ms.max(1) }
        }
    }
}

impl Growth {
    /// Counts what a step adds and removes; bytes only as far as they grow.
    fn add(
        &mut self,
        step: &Step,
        name: &LockName,
        stored: Option<&StoredObject>,
        lines: &impl StoreAccess,
    ) {
        let old = |old: &Option<ReplacedTicket>| {
            let holder = old.as_ref().and_then(|_| lines.holder(name));
            holder.map_or(Weight::NONE, |holder| holder.weight())
        };
        let name_len = Weight::texts(name.as_bytes().len());
        let lock = if lines.line(name).is_some() { name_len } else { Weight::NONE };
        let object = stored.map_or(Weight::NONE, StoredObject::weight);
        let text = |label: &Label| Weight::texts(label.as_bytes().len());
        let (before, after) = match step {
            Step::Nothing | Step::End(_) | Step::Remove => (Weight::NONE, Weight::NONE),
            Step::Draw { label, after, .. } => {
                (lock.and(object).and(old(after)), name_len.and(text(label)))
            }
            Step::Keep { label, .. } => {
                let before = lines.holder(name).and_then(|holder| holder.own_label());
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
        count(&mut self.removed, gone && stored.is_some());
    }
}

/// Keeps the ticket, and sets its lease unless that is to be kept too.
fn keep(holder: &HolderView<'_>, expiry: Expiry, label: Option<Label>) -> Step {
    let lease = match expiry {
        Expiry::Keep => None,
        Expiry::Never => Some(Lease::Permanent),
        Expiry::AfterMs(ttl_ms) => Some(Lease::Deadline { ttl_ms }),
    };
    Step::Keep { token: holder.token(), lease, label }
}

/// Who broke a ticket, and why.
fn broken(by: Option<Label>, reason: &str) -> Option<Arc<Forced>> {
    let (by, reason) = (by?, Reason::parse(reason).ok()?);
    Some(Arc::new(Forced { by, reason }))
}
