//! Transactions: all writes, or none.

use super::keys::{kind_of, size_of};
use super::line::later;
use super::records::Kept;
use super::request::first_broken;
use super::{Model, Ticket};
use holdfast_core::{
    Answer, Bound, Door, Effect, EndReason, EventKind, Expiry, Forced, InvalidField, KeyKind,
    Label, Lease, LockName, Mode, Object, Reason, Refusal, Token, Transaction, Untouched, Write,
    WriteOp,
};
use std::sync::Arc;

impl Model {
    pub(super) fn transact(&mut self, transaction: Transaction) -> Result<Answer, Refusal> {
        self.check_transaction(&transaction)?;
        for (name, stamp) in &transaction.seen {
            if self.stamp(name) != *stamp {
                return Err(Refusal::Changed { name: Some(name.clone()) });
            }
        }
        if transaction.seen_all.is_some_and(|seen| seen != self.keys_changed()) {
            return Err(Refusal::Changed { name: None });
        }
        for write in &transaction.writes {
            self.check_write(transaction.door, write)?;
        }
        let before = self.clone();
        let door = transaction.door;
        let tokens = transaction.writes.into_iter().map(|write| self.write(door, write)).collect();
        let full = if grown(before.tickets.len(), self.tickets.len(), self.limits.tickets_max) {
            Some(Bound::Tickets)
        } else if grown(before.objects.len(), self.objects.len(), self.limits.objects_max) {
            Some(Bound::Objects)
        } else {
            None
        };
        if let Some(bound) = full {
            *self = before;
            return Err(Refusal::Full(bound));
        }
        let published = transaction.publish.into_iter();
        self.effects
            .extend(published.map(|(channel, message)| Effect::Published { channel, message }));
        Ok(Answer::Transacted(tokens))
    }

    /// The rules for a transaction that don't depend on its keys.
    fn check_transaction(&self, transaction: &Transaction) -> Result<(), Refusal> {
        let limits = &self.limits;
        let (mut twice, mut no_time, mut too_large) = (false, false, false);
        let mut names = Vec::new();
        for Write { name, to } in &transaction.writes {
            twice |= names.contains(&name);
            names.push(name);
            no_time |= match to {
                WriteOp::Text { expiry, .. } | WriteOp::Relabel { expiry, .. } => {
                    is_at_once(expiry)
                }
                WriteOp::Object { expiry, .. } | WriteOp::Expiring(expiry) => is_at_once(expiry),
                WriteOp::Gone { .. } => false,
            };
            if let WriteOp::Object { object, .. } = to {
                let (elements, bytes) = size_of(object);
                too_large |= elements > limits.object_elements_max;
                too_large |= bytes > limits.object_bytes_max;
            }
        }
        first_broken([
            (transaction.door == Door::Native, InvalidField::NativeTransaction),
            (transaction.seen.len() > limits.keys_read_max, InvalidField::TooManyKeysRead),
            (transaction.writes.len() > limits.keys_written_max, InvalidField::TooManyKeysWritten),
            (transaction.publish.len() > limits.published_max, InvalidField::TooManyPublished),
            (twice, InvalidField::SameNameTwice),
            (no_time, InvalidField::NoTtl),
            (too_large, InvalidField::ObjectTooLarge),
            (
                bytes_of(transaction) > limits.transaction_bytes_max,
                InvalidField::TransactionTooLarge,
            ),
        ])
    }

    /// Why a write is not possible, given the current content of its key.
    fn check_write(&self, door: Door, write: &Write) -> Result<(), Refusal> {
        let name = &write.name;
        let in_use = |kind| Err(Refusal::InUse { name: name.clone(), kind });
        let object = self.kept(name).map(|kept| kind_of(&kept.object));
        let holders = self.holders(name);
        let fresh = match write.to {
            WriteOp::Text { fresh, .. } | WriteOp::Object { fresh, .. } => fresh,
            _ => true,
        };
        if let WriteOp::Object { .. } = write.to
            && !self.line(name).is_empty()
            && (holders.is_empty() || !fresh)
        {
            return in_use(KeyKind::Text);
        }
        if let Some(first) = holders.first() {
            if first.door != door {
                return Err(self.untouched(name, first, Untouched::OtherDoor));
            }
            if self.own_text(door, name).is_none() {
                return Err(self.untouched(name, first, Untouched::NotAText));
            }
        }
        match (&write.to, holders.first(), object) {
            (WriteOp::Text { value, .. }, Some(holder), _) => {
                if fresh || self.text_of(holder) != *value {
                    self.check_makes_way(name, holder, !fresh)?;
                }
                Ok(())
            }
            (WriteOp::Text { .. }, None, Some(kind)) if !fresh => in_use(kind),
            (WriteOp::Text { .. }, None, _) => self.check_free(name),
            (WriteOp::Relabel { .. }, None, None) => {
                Err(Refusal::NotHeld { name: name.clone(), token: None, how: None })
            }
            (WriteOp::Relabel { .. }, None, Some(kind)) => in_use(kind),
            (WriteOp::Object { .. }, Some(holder), _) => self.check_makes_way(name, holder, false),
            (WriteOp::Object { object, .. }, None, Some(kind))
                if !fresh && kind != kind_of(object) =>
            {
                in_use(kind)
            }
            (WriteOp::Object { .. }, None, None) => self.check_free(name),
            _ => Ok(()),
        }
    }

    fn untouched(&self, name: &LockName, holder: &Ticket, why: Untouched) -> Refusal {
        let (token, label, door) = (holder.token, self.label_of(holder), holder.door);
        Refusal::Held { name: name.clone(), token, label, door, why }
    }

    /// Whether a holder may be replaced.
    fn check_makes_way(
        &self,
        name: &LockName,
        holder: &Ticket,
        broken: bool,
    ) -> Result<(), Refusal> {
        if !self.waiters(name).is_empty() {
            return Err(self.untouched(name, holder, Untouched::WaitedFor));
        }
        if broken && holder.lock_delay_ms > 0 {
            return Err(self.untouched(name, holder, Untouched::LockDelay));
        }
        Ok(())
    }

    /// Whether a new ticket would be held at once, where there is no holder.
    fn check_free(&self, name: &LockName) -> Result<(), Refusal> {
        if self.waiters(name).is_empty() && self.delayed_until(name).is_none() {
            return Ok(());
        }
        let delayed_until_ms = self.delayed_until(name);
        Err(Refusal::Busy { name: name.clone(), holder: None, label: None, delayed_until_ms })
    }

    /// The ticket of a text, if this door may change it.
    pub(super) fn own_text(&self, door: Door, name: &LockName) -> Option<Ticket> {
        let holders = self.holders(name);
        let [holder] = holders.as_slice() else { return None };
        let own = holder.door == door
            && door != Door::Native
            && holder.secret.is_none()
            && holder.mode == Mode::Exclusive
            && !matches!(holder.lease, Lease::Session | Lease::Unconfirmed { .. })
            && holder.names.len() == 1;
        own.then(|| (*holder).clone())
    }

    fn write(&mut self, door: Door, write: Write) -> Option<Token> {
        let Write { name, to } = write;
        let holder = self.own_text(door, &name);
        match to {
            WriteOp::Text { value, expiry, fresh } => {
                let same = holder.clone().filter(|t| !fresh && self.text_of(t) == value);
                if let Some(same) = same {
                    return Some(self.keep(same.token, expiry));
                }
                let left_ms = holder.as_ref().filter(|_| !fresh).and_then(|holder| holder.due_ms);
                if let Some(holder) = holder {
                    self.make_way(&holder, (!fresh).then_some(&value));
                }
                self.remove_object(&name);
                Some(self.draw(door, name, value, expiry, left_ms))
            }
            WriteOp::Relabel { value, expiry } => {
                let holder = holder?;
                let token = self.keep(holder.token, expiry);
                if self.text_of(&holder) != value {
                    self.relabel(token, name, value);
                }
                Some(token)
            }
            WriteOp::Object { object, expiry, fresh } => {
                if let Some(holder) = &holder {
                    self.make_way(holder, None);
                }
                let before_ms = self.kept(&name).filter(|_| !fresh).and_then(|kept| kept.due_ms);
                if size_of(&object).0 == 0 {
                    self.remove_object(&name);
                    return holder.map(|holder| holder.token);
                }
                self.put_object(name, Arc::new(object), self.due(expiry, before_ms));
                None
            }
            WriteOp::Expiring(expiry) => {
                if let Some(holder) = holder {
                    return Some(self.keep(holder.token, expiry));
                }
                let kept = self.kept(&name)?.clone();
                self.put_object(name, kept.object, self.due(expiry, kept.due_ms));
                None
            }
            WriteOp::Gone { forced } => {
                self.remove_object(&name);
                let token = holder?.token;
                let by = || text(name_of(door), "its key was deleted");
                match forced {
                    true => self.end(token, EndReason::Forced, Some(&by())),
                    false => self.end(token, EndReason::Released, None),
                }
                Some(token)
            }
        }
    }

    fn due(&self, expiry: Expiry, before_ms: Option<u64>) -> Option<u64> {
        match expiry {
            Expiry::Keep => before_ms,
            Expiry::Never => None,
            Expiry::AfterMs(ms) => later(self.now_ms, ms),
        }
    }

    fn keep(&mut self, token: Token, expiry: Expiry) -> Token {
        let due_ms = self.due(expiry, None);
        if let Some(ticket) = self.ticket_mut(token) {
            let lease = match expiry {
                Expiry::Keep => return token,
                Expiry::Never => Lease::Permanent,
                Expiry::AfterMs(ttl_ms) => Lease::Deadline { ttl_ms },
            };
            (ticket.lease, ticket.due_ms) = (lease, due_ms);
        }
        token
    }

    fn make_way(&mut self, holder: &Ticket, by: Option<&Label>) {
        let reason = Reason::parse("its key was set to another value").expect("short");
        match by.cloned().map(|by| Forced { by, reason }) {
            Some(forced) => self.leave(holder.token, EndReason::Forced, Some(&forced), true),
            None => self.leave(holder.token, EndReason::Released, None, true),
        }
    }

    fn draw(
        &mut self,
        door: Door,
        name: LockName,
        value: Label,
        expiry: Expiry,
        due_before_ms: Option<u64>,
    ) -> Token {
        let lease = match (expiry, due_before_ms) {
            (Expiry::AfterMs(ttl_ms), _) => Lease::Deadline { ttl_ms },
            (Expiry::Keep, Some(due_ms)) => {
                Lease::Deadline { ttl_ms: due_ms.saturating_sub(self.now_ms).max(1) }
            }
            _ => Lease::Permanent,
        };
        self.counter += 1;
        let token = Token(self.counter);
        self.tickets.push(Ticket {
            token,
            names: vec![name],
            mode: Mode::Exclusive,
            session: None,
            lease,
            due_ms: None,
            label: Some(value),
            note: None,
            secret: None,
            claims: Vec::new(),
            lock_delay_ms: 0,
            door,
            held: false,
            joined_ms: self.now_ms,
            granted_ms: 0,
            upgrades: None,
            revocation: None,
            after: None,
            relabelled: 0,
        });
        self.serve();
        token
    }

    fn relabel(&mut self, token: Token, name: LockName, label: Label) {
        self.changes += 1;
        let relabelled = self.changes;
        let Some(ticket) = self.ticket_mut(token) else { return };
        ticket.label = Some(label.clone());
        ticket.relabelled = relabelled;
        let ticket = ticket.clone();
        self.happened_to(&name, &ticket, EventKind::Relabelled);
        self.effects.push(Effect::Relabelled { token, name, label });
    }

    fn put_object(&mut self, name: LockName, object: Arc<Object>, due_ms: Option<u64>) {
        self.changes += 1;
        let (version, now) = (self.changes, Some(kind_of(&object)));
        self.objects.retain(|kept| kept.name != name);
        self.objects.push(Kept { name: name.clone(), object, version, due_ms });
        self.effects.push(Effect::ObjectChanged { name, now, version });
    }

    pub(super) fn remove_object(&mut self, name: &LockName) {
        if self.kept(name).is_some() {
            self.changes += 1;
            self.objects.retain(|kept| kept.name != *name);
            let (name, version) = (name.clone(), self.changes);
            self.effects.push(Effect::ObjectChanged { name, now: None, version });
        }
    }
}

fn grown(before: usize, now: usize, max: usize) -> bool {
    now > before && now > max
}

fn text(by: &str, reason: &str) -> Forced {
    let (by, reason) = (Label::parse(by), Reason::parse(reason));
    Forced { by: by.expect("short"), reason: reason.expect("short") }
}

fn is_at_once(expiry: &Expiry) -> bool {
    *expiry == Expiry::AfterMs(0)
}

/// The label of a door that breaks a ticket by deleting its key.
fn name_of(door: Door) -> &'static str {
    match door {
        Door::Native => "native",
        Door::Redis => "Redis",
        Door::ZooKeeper => "ZooKeeper",
        Door::Cql => "CQL",
    }
}

fn bytes_of(transaction: &Transaction) -> usize {
    let mut sum = 0;
    for (name, _) in &transaction.seen {
        sum += name.as_bytes().len();
    }
    for Write { name, to } in &transaction.writes {
        sum += name.as_bytes().len();
        sum += match to {
            WriteOp::Text { value, .. } | WriteOp::Relabel { value, .. } => value.as_bytes().len(),
            WriteOp::Object { object, .. } => size_of(object).1,
            WriteOp::Expiring(_) | WriteOp::Gone { .. } => 0,
        };
    }
    for (channel, message) in &transaction.publish {
        sum += channel.as_bytes().len() + message.as_bytes().len();
    }
    sum
}
