//! Drawing a ticket and entering the lines; upgrade and downgrade.

use super::history::EventKind;
use super::records::{Extra, Lock, Ticket, ticket_rest};
use super::{Lines, StepBudget};
use crate::command::{Acquire, Door, Lease, Mode, Proof, RequestRef, SessionKind, Target, Wait};
use crate::containers::Slot;
use crate::effect::{Answer, Effect};
use crate::ids::{NEVER_MS, Secret, SessionId, Token};
use crate::refusal::{Bound, InvalidField, Refusal};
use crate::text::{Label, LockName};
use crate::weight::Weight;

impl Lines {
    /// `check_name` decides whether a name may be a lock now: a store may have something else
    /// there.
    pub(crate) fn acquire(
        &mut self,
        acquire: Acquire,
        check_name: impl Fn(&LockName) -> Result<(), Refusal>,
        request: Option<&RequestRef>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        self.check_form(&acquire)?;
        let Acquire { mut names, mode, session, mut lease, wait, label, note, .. } = acquire;
        names.sort_unstable();
        let session = session.map(|session| session.id);
        for name in &names {
            check_name(name)?;
            self.check_line(name, mode)?;
            if names.len() > 1 {
                self.check_not_held(name, session)?;
            }
        }
        self.check_claims_held(&acquire.claims)?;
        let busy = names.iter().find(|name| !self.free_for(name, mode));
        if let Some(busy) = busy {
            if wait == Wait::Try {
                return Err(self.busy_but_for(busy, None));
            }
            self.check_lines_not_full(&names)?;
            self.check_owned(session, wait, request)?;
            self.check_no_circle(&names, mode, &acquire.claims, None)?;
        } else if let Lease::Unconfirmed { ttl_ms } = lease {
            // The answer itself is the grant.
            lease = Lease::Deadline { ttl_ms };
        }
        let rare = note.is_some()
            || !acquire.claims.is_empty()
            || acquire.lock_delay_ms > 0
            || matches!(request, Some(RequestRef::Alone(_)));
        let extra = rare.then(|| {
            Box::new(Extra {
                note,
                claims: acquire.claims,
                lock_delay_ms: acquire.lock_delay_ms,
                ..Extra::default()
            })
        });
        let ticket = TicketSpec {
            session,
            secret: acquire.secret,
            label,
            mode,
            door: acquire.door,
            lease,
            extra,
        };
        self.enter(names, ticket, wait, request, effects)
    }

    /// Checks what can be decided from the request alone.
    fn check_form(&self, acquire: &Acquire) -> Result<(), Refusal> {
        let Acquire { names, mode, session, lease, claims, .. } = acquire;
        if let Some(session) = session {
            self.check_session(session)?;
        }
        let bad = if names.is_empty() {
            InvalidField::NoNames
        } else if names.len() > self.limits.names_per_ticket_max {
            InvalidField::TooManyNames
        } else if has_twice(names) {
            InvalidField::SameNameTwice
        } else if *mode == (Mode::Permit { of: 0 }) {
            InvalidField::NoPermits
        } else if matches!(lease, Lease::Deadline { ttl_ms: 0 } | Lease::Unconfirmed { ttl_ms: 0 })
        {
            InvalidField::NoTtl
        } else if claims.len() > self.limits.claims_per_ticket_max {
            InvalidField::TooManyClaims
        } else if matches!(lease, Lease::Session | Lease::Unconfirmed { .. }) && session.is_none() {
            InvalidField::LeaseNeedsSession
        } else if acquire.lock_delay_ms > self.limits.lock_delay_ms_max {
            InvalidField::LockDelay
        } else {
            return Ok(());
        };
        Err(Refusal::BadRequest(bad))
    }

    /// A wait must have an end (a session's heartbeat or a deadline), and someone must be able to
    /// find it again.
    fn check_owned(
        &self,
        session: Option<SessionId>,
        wait: Wait,
        request: Option<&RequestRef>,
    ) -> Result<(), Refusal> {
        let kind = session.and_then(|id| self.session(id)).map(|session| session.kind);
        match (session.filter(|_| kind == Some(SessionKind::Client)), wait) {
            (Some(_), _) => Ok(()),
            (None, Wait::Forever) => Err(Refusal::BadRequest(InvalidField::WaitNeedsDeadline)),
            (None, _) if request.is_none() && kind.is_none() => {
                Err(Refusal::BadRequest(InvalidField::WaitNeedsOwner))
            }
            (None, _) => Ok(()),
        }
    }

    pub(super) fn check_line(&self, name: &LockName, mode: Mode) -> Result<(), Refusal> {
        let Some(lock) = self.lock(name).filter(|lock| lock.line_len > 0) else { return Ok(()) };
        let permits = match mode {
            Mode::Exclusive | Mode::Shared => None,
            Mode::Permit { of } => Some(of),
        };
        if lock.permits() != permits {
            return Err(Refusal::OtherKind { name: name.clone(), permits: lock.permits() });
        }
        Ok(())
    }

    pub(super) fn check_lines_not_full(&self, names: &[LockName]) -> Result<(), Refusal> {
        let waiters = names.iter().filter_map(|name| self.lock(name)).map(Lock::waiters).max();
        if waiters.is_some_and(|waiters| waiters as usize >= self.limits.waiters_per_lock_max) {
            return Err(Refusal::Full(Bound::Waiters));
        }
        Ok(())
    }

    /// A ticket for several names can't wait for its own session's tickets. A node's session
    /// represents many clients, which may wait for each other.
    fn check_not_held(&self, name: &LockName, session: Option<SessionId>) -> Result<(), Refusal> {
        let client =
            |id: &SessionId| self.session(*id).is_some_and(|s| s.kind == SessionKind::Client);
        let session = session.filter(client);
        let Some((slot, session)) = self.lock_slot(name).zip(session) else { return Ok(()) };
        let Some(lock) = self.data.locks.get(slot) else { return Ok(()) };
        if lock.holders as usize > self.limits.holders_walked_max {
            return Err(Refusal::NameTheToken(name.clone()));
        }
        let is_its_own =
            |token: &Token| self.ticket(*token).is_some_and(|t| t.session == Some(session));
        match self.index.sets.lines.holders(slot, lock).find(is_its_own) {
            Some(token) => Err(Refusal::AlreadyHeld { name: name.clone(), token }),
            None => Ok(()),
        }
    }

    fn lock(&self, name: &LockName) -> Option<&Lock> {
        self.data.locks.get(self.lock_slot(name)?)
    }

    /// Whether a new ticket would be served at once.
    pub(super) fn free_for(&self, name: &LockName, mode: Mode) -> bool {
        self.lock(name).is_none_or(|lock| {
            let delayed = lock.delayed_until_ms().is_some();
            lock.waiters() == 0 && !delayed && lock.has_room_for(mode)
        })
    }

    /// The refusal of a try, which names the holder in the way, other than `asker` itself.
    pub(super) fn busy_but_for(&self, name: &LockName, asker: Option<Token>) -> Refusal {
        let lock = self.lock(name);
        let holders = self.lock_slot(name).zip(lock);
        let mut holders =
            holders.into_iter().flat_map(|(slot, lock)| self.index.sets.lines.holders(slot, lock));
        let holder = holders.find(|holder| Some(*holder) != asker);
        let label = holder.and_then(|token| self.label_of(self.ticket(token)?));
        let delayed_until_ms = lock.and_then(Lock::delayed_until_ms);
        Refusal::Busy { name: name.clone(), holder, label, delayed_until_ms }
    }

    /// Enters a ticket into its lines, if there is room.
    fn enter(
        &mut self,
        names: Vec<LockName>,
        spec: TicketSpec,
        wait: Wait,
        request: Option<&RequestRef>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        self.check_request_session(spec.session, request)?;
        self.check_room(&names, &spec)?;
        let token = self.draw_ticket(names, spec, wait, request, effects);
        let token = token.ok_or(Refusal::BadRequest(InvalidField::NoNames))?;
        Ok(Answer::TicketStatus(self.ticket_status(token)))
    }

    /// Draws the number, enters all lines, and grants the ticket if it is its turn. `None` without
    /// a name.
    pub(super) fn draw_ticket(
        &mut self,
        names: Vec<LockName>,
        spec: TicketSpec,
        wait: Wait,
        request: Option<&RequestRef>,
        effects: &mut Vec<Effect>,
    ) -> Option<Token> {
        let now_ms = self.data.clock.now_ms;
        let number = self.next_number();
        let mut slots = names.into_iter().map(|name| self.lock_of(name));
        let first = slots.next()?;
        let more_locks: Vec<Slot> = slots.collect();
        let mut ticket = Ticket {
            number,
            session: spec.session,
            request: None,
            secret: spec.secret,
            label: spec.label,
            lock: first,
            mode: spec.mode,
            door: spec.door,
            held: false,
            lease: spec.lease,
            due_ms: match wait {
                Wait::Try | Wait::Forever => NEVER_MS,
                Wait::For { ms } => now_ms.saturating_add(ms),
            },
            joined_ms: now_ms,
            since_ms: 0,
            extra: spec.extra,
        };
        if !more_locks.is_empty() {
            ticket.extra_mut().more_locks = more_locks;
        }
        match request {
            Some(RequestRef::InSession { id, .. }) => ticket.request = Some(*id),
            Some(RequestRef::Alone(key)) => ticket.extra_mut().request_key = Some(key.clone()),
            None => {}
        }
        self.weigh_change(Weight::NONE, ticket.weight());
        self.index.sets.add_ticket(&ticket);
        for slot in ticket.locks() {
            let Some(lock) = self.data.locks.get_mut(slot) else { continue };
            self.index.sets.lines.join(slot, lock, number);
            lock.set_kind(ticket.mode);
        }
        let slot = self.data.tickets.insert(ticket);
        self.index.numbers.insert(&self.data.tickets, slot);
        let mut steps = StepBudget(self.limits.steps_max);
        self.serve(first, &mut steps, effects);
        Some(number)
    }

    /// The request by which the ticket is found again must belong to its session.
    fn check_request_session(
        &self,
        session: Option<SessionId>,
        request: Option<&RequestRef>,
    ) -> Result<(), Refusal> {
        let of_request = match request {
            None => return Ok(()),
            Some(RequestRef::InSession { session, .. }) => Some(session.id),
            Some(RequestRef::Alone(_)) => None,
        };
        if of_request == session {
            Ok(())
        } else {
            Err(Refusal::BadRequest(InvalidField::OtherSession))
        }
    }

    fn check_room(&self, names: &[LockName], spec: &TicketSpec) -> Result<(), Refusal> {
        if self.data.tickets.len() >= self.limits.tickets_max {
            return Err(Refusal::Full(Bound::Tickets));
        }
        let label = spec.label.as_ref().map_or(0, |label| label.as_bytes().len());
        let note = spec.extra.as_ref().and_then(|extra| extra.note.as_ref());
        let note = note.map_or(0, |note| note.as_bytes().len());
        let new = names.iter().filter(|name| self.lock_slot(name).is_none());
        let new = new.fold(0_usize, |sum, name| sum.saturating_add(name.as_bytes().len()));
        let texts = label.saturating_add(note).saturating_add(new);
        let claims = spec.extra.as_ref().map_or(0, |extra| extra.claims.len());
        let rest = ticket_rest(names.len().saturating_sub(1), claims);
        self.check_bytes(Weight { texts, rest })
    }

    pub(super) fn check_bytes(&self, more: Weight) -> Result<(), Refusal> {
        self.check_bytes_below(more, self.limits.bytes_max)
    }

    pub(super) fn check_bytes_below(&self, more: Weight, max: usize) -> Result<(), Refusal> {
        if self.counted(self.weight.and(more)) > max {
            return Err(Refusal::Full(Bound::Bytes));
        }
        Ok(())
    }

    /// The next ticket number: the counter never goes back.
    pub(super) fn next_number(&mut self) -> Token {
        self.data.counter = self.data.counter.saturating_add(1);
        Token(self.data.counter)
    }

    fn lock_of(&mut self, name: LockName) -> Slot {
        if let Some(slot) = self.lock_slot(&name) {
            return slot;
        }
        let lock = Lock::new(name.clone());
        self.weigh_change(Weight::NONE, lock.weight());
        let slot = self.data.locks.insert(lock);
        self.index.names.insert(&self.data.locks, slot);
        self.index.order.insert(slot, &name);
        slot
    }

    /// The new ticket may only have readers ahead of it: other waiters come first, and two
    /// upgraders would wait for each other.
    pub(crate) fn upgrade(
        &mut self,
        target: &Target,
        proof: &Proof,
        wait: Wait,
        mut claims: Vec<Token>,
        request: Option<&RequestRef>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        let (_, ticket) = self.owned(target, proof)?;
        let shared = ticket.number;
        if !ticket.held {
            return Err(Refusal::NotYetServed(shared));
        }
        if ticket.mode != Mode::Shared {
            return Err(Refusal::WrongMode(shared));
        }
        if claims.len() > self.limits.claims_per_ticket_max {
            return Err(Refusal::BadRequest(InvalidField::TooManyClaims));
        }
        let spec = TicketSpec {
            session: ticket
                .session
                .filter(|id| self.session(*id).is_some_and(|s| s.dying.is_none())),
            secret: ticket.secret,
            label: ticket.label.clone(),
            mode: Mode::Exclusive,
            door: ticket.door,
            lease: ticket.lease,
            extra: None,
        };
        let lock_delay_ms = ticket.extra.as_ref().map_or(0, |extra| extra.lock_delay_ms);
        let (note, revocation) = (ticket.note().cloned(), ticket.revocation().cloned());
        let mut names = Vec::new();
        let mut busy = None;
        for lock in ticket.locks().filter_map(|slot| self.data.locks.get(slot)) {
            if lock.waiters() > 0 {
                return Err(Refusal::UpgradeBlocked(lock.name.clone()));
            }
            if busy.is_none() && (lock.holders > 1 || lock.delayed_until_ms().is_some()) {
                busy = Some(lock.name.clone());
            }
            names.push(lock.name.clone());
        }
        self.check_claims_held(&claims)?;
        claims.push(shared);
        if let Some(busy) = busy {
            if wait == Wait::Try {
                return Err(self.busy_but_for(&busy, Some(shared)));
            }
            self.check_owned(spec.session, wait, request)?;
            self.check_no_circle(&names, Mode::Exclusive, &claims, Some(shared))?;
        }
        let upgrades = Some(shared);
        // A revocation of the reader also applies to the writer that it becomes.
        let extra = Extra { note, claims, lock_delay_ms, upgrades, revocation, ..Extra::default() };
        let spec = TicketSpec { extra: Some(Box::new(extra)), ..spec };
        self.enter(names, spec, wait, request, effects)
    }

    pub(crate) fn downgrade(
        &mut self,
        target: &Target,
        proof: &Proof,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        let (slot, ticket) = self.owned(target, proof)?;
        let token = ticket.number;
        match (ticket.held, ticket.mode) {
            (false, _) => return Err(Refusal::NotYetServed(token)),
            (true, Mode::Shared) => return Ok(Answer::Downgraded(token)),
            (true, Mode::Permit { .. }) => return Err(Refusal::WrongMode(token)),
            (true, Mode::Exclusive) => {}
        }
        self.become_shared(slot, effects);
        Ok(Answer::Downgraded(token))
    }

    /// Turns a held exclusive ticket into a shared one, and serves the waiters that may now share
    /// the lock.
    pub(super) fn become_shared(&mut self, slot: Slot, effects: &mut Vec<Effect>) {
        let Some(ticket) = self.data.tickets.get(slot) else { return };
        let token = ticket.number;
        let (names, label) = (self.names_of(ticket), self.label_of(ticket));
        let locks: Vec<Slot> = ticket.locks().collect();
        self.change_ticket(slot, |ticket| ticket.mode = Mode::Shared);
        for slot in &locks {
            let Some(lock) = self.data.locks.get_mut(*slot) else { continue };
            lock.exclusive = false;
            let name = lock.name.clone();
            self.record(name, token, label.clone(), EventKind::Downgraded);
        }
        effects.push(Effect::Downgraded { token, names });
        let mut steps = StepBudget(self.limits.steps_max);
        for slot in locks {
            self.serve(slot, &mut steps, effects);
        }
    }
}

/// The properties of a ticket, before it has a number.
pub(crate) struct TicketSpec {
    pub(super) session: Option<SessionId>,
    pub(super) secret: Option<Secret>,
    pub(super) label: Option<Label>,
    pub(super) mode: Mode,
    pub(super) door: Door,
    pub(super) lease: Lease,
    pub(super) extra: Option<Box<Extra>>,
}

impl TicketSpec {
    /// An exclusive ticket whose label is its proof: without a session or a secret.
    pub(crate) fn known_by_label(door: Door, label: Label, lease: Lease) -> Self {
        let (session, secret, label, mode, extra) =
            (None, None, Some(label), Mode::Exclusive, None);
        Self { session, secret, label, mode, door, lease, extra }
    }

    /// A ticket without a secret of its own, of a session or of nobody.
    pub(crate) fn of_session(
        door: Door,
        session: Option<SessionId>,
        label: Option<Label>,
        mode: Mode,
        lease: Lease,
    ) -> Self {
        Self { session, secret: None, label, mode, door, lease, extra: None }
    }
}

fn has_twice(names: &[LockName]) -> bool {
    names
        .iter()
        .enumerate()
        .any(|(index, name)| names.iter().take(index).any(|other| other == name))
}
