//! Drawing a ticket: acquire and upgrade; and downgrade.

use super::keys::kind_of;
use super::line::later;
use super::request::first_broken;
use super::{Model, Ticket};
use holdfast_core::{
    Acquire, Answer, Bound, Effect, EventKind, InvalidField, Lease, LockName, Mode, Proof, Refusal,
    RequestRef, SessionId, SessionKind, Target, Token, Wait,
};

impl Model {
    pub(super) fn acquire(
        &mut self,
        acquire: Acquire,
        request: Option<&RequestRef>,
    ) -> Result<Answer, Refusal> {
        if let Some(session) = acquire.session {
            self.owned_session(session)?;
        }
        self.check_fields(&acquire)?;
        let session = acquire.session.map(|session| session.id);
        let mut names = acquire.names;
        names.sort();
        let ticket = Ticket {
            token: Token(self.counter + 1),
            names,
            mode: acquire.mode,
            session,
            lease: acquire.lease,
            due_ms: None,
            label: acquire.label,
            note: acquire.note,
            secret: acquire.secret,
            claims: acquire.claims,
            lock_delay_ms: acquire.lock_delay_ms,
            door: acquire.door,
            held: false,
            joined_ms: self.now_ms,
            granted_ms: 0,
            upgrades: None,
            revocation: None,
            after: None,
            relabelled: 0,
        };
        for name in &ticket.names {
            if let Some(kept) = self.kept(name) {
                let kind = kind_of(&kept.object);
                return Err(Refusal::InUse { name: name.clone(), kind });
            }
            self.check_line(&ticket, name)?;
        }
        self.enter(ticket, acquire.wait, request)
    }

    /// The rules for an acquire that don't depend on the lock.
    fn check_fields(&self, acquire: &Acquire) -> Result<(), Refusal> {
        let mut names = acquire.names.clone();
        names.sort();
        names.dedup();
        let ttl_ms = match acquire.lease {
            Lease::Deadline { ttl_ms } | Lease::Unconfirmed { ttl_ms } => Some(ttl_ms),
            Lease::Session | Lease::Permanent => None,
        };
        let lease_of_session = match acquire.lease {
            Lease::Session | Lease::Unconfirmed { .. } => true,
            Lease::Deadline { .. } | Lease::Permanent => false,
        };
        first_broken([
            (acquire.names.is_empty(), InvalidField::NoNames),
            (acquire.names.len() > self.limits.names_per_ticket_max, InvalidField::TooManyNames),
            (acquire.names.len() != names.len(), InvalidField::SameNameTwice),
            (permits(acquire.mode) == Some(0), InvalidField::NoPermits),
            (ttl_ms == Some(0), InvalidField::NoTtl),
            (acquire.claims.len() > self.limits.claims_per_ticket_max, InvalidField::TooManyClaims),
            (lease_of_session && acquire.session.is_none(), InvalidField::LeaseNeedsSession),
            (acquire.lock_delay_ms > self.limits.lock_delay_ms_max, InvalidField::LockDelay),
        ])
    }

    /// Whether a ticket may be in a line at all.
    fn check_line(&self, ticket: &Ticket, name: &LockName) -> Result<(), Refusal> {
        let name = name.clone();
        if let Some(first) = self.line(&name).first()
            && permits(first.mode) != permits(ticket.mode)
        {
            return Err(Refusal::OtherKind { name, permits: permits(first.mode) });
        }
        // A node's session represents many clients, which may wait for each other.
        let kind = ticket.session.and_then(|id| self.session(id)).map(|session| session.kind);
        let is_client = kind == Some(SessionKind::Client);
        if is_client
            && ticket.names.len() > 1
            && self.holders(&name).len() > self.limits.holders_walked_max
        {
            return Err(Refusal::NameTheToken(name));
        }
        // Several names in one step would wait for themselves if the session held one of them.
        let own = |holder: &&&Ticket| holder.session == ticket.session;
        if is_client
            && ticket.names.len() > 1
            && let Some(own) = self.holders(&name).iter().find(own)
        {
            return Err(Refusal::AlreadyHeld { name, token: own.token });
        }
        Ok(())
    }

    pub(super) fn upgrade(
        &mut self,
        target: &Target,
        proof: &Proof,
        wait: Wait,
        mut claims: Vec<Token>,
        request: Option<&RequestRef>,
    ) -> Result<Answer, Refusal> {
        let shared = self.held(target, proof)?;
        if shared.mode != Mode::Shared {
            return Err(Refusal::WrongMode(shared.token));
        }
        if claims.len() > self.limits.claims_per_ticket_max {
            return Err(Refusal::BadRequest(InvalidField::TooManyClaims));
        }
        if let Some(name) = shared.names.iter().find(|name| !self.waiters(name).is_empty()) {
            return Err(Refusal::UpgradeBlocked(name.clone()));
        }
        claims.push(shared.token);
        // It may have outlived its session; then nobody's heartbeat keeps the wait alive.
        let session = shared.session.filter(|id| self.session(*id).is_some());
        let ticket = Ticket {
            token: Token(self.counter + 1),
            mode: Mode::Exclusive,
            session,
            due_ms: None,
            claims,
            held: false,
            joined_ms: self.now_ms,
            granted_ms: 0,
            upgrades: Some(shared.token),
            after: None,
            relabelled: 0,
            ..shared
        };
        self.enter(ticket, wait, request)
    }

    /// Adds a ticket to its lines, unless it is refused.
    fn enter(
        &mut self,
        mut ticket: Ticket,
        wait: Wait,
        request: Option<&RequestRef>,
    ) -> Result<Answer, Refusal> {
        self.check_claims(&ticket)?;
        if let Some(name) = ticket.names.iter().find(|name| !self.free_for(&ticket, name)) {
            self.check_wait(&ticket, name, wait, request)?;
        } else if ticket.upgrades.is_none()
            && let Lease::Unconfirmed { ttl_ms } = ticket.lease
        {
            // The answer itself is the grant.
            ticket.lease = Lease::Deadline { ttl_ms };
        }
        check_same_session(ticket.session, request)?;
        if self.tickets.len() >= self.limits.tickets_max {
            return Err(Refusal::Full(Bound::Tickets));
        }
        if let Wait::For { ms } = wait {
            ticket.due_ms = later(self.now_ms, ms);
        }
        let token = ticket.token;
        self.counter += 1;
        self.tickets.push(ticket);
        self.serve();
        Ok(self.ticket_status(token).map_or(Answer::Ticked, Answer::TicketStatus))
    }

    fn check_claims(&self, ticket: &Ticket) -> Result<(), Refusal> {
        let held = |token| self.ticket(token).is_some_and(|ticket| ticket.held);
        match ticket.claims.iter().find(|token| !held(**token)) {
            Some(token) => Err(Refusal::ClaimNotHeld(*token)),
            None => Ok(()),
        }
    }

    /// Whether a ticket that can't be served at once may wait; `busy` is the first name that is not
    /// free.
    fn check_wait(
        &mut self,
        ticket: &Ticket,
        busy: &LockName,
        wait: Wait,
        request: Option<&RequestRef>,
    ) -> Result<(), Refusal> {
        if wait == Wait::Try {
            let others = self.holders(busy);
            let mut others = others.iter().filter(|t| ticket.upgrades != Some(t.token));
            let first = others.next();
            return Err(Refusal::Busy {
                name: busy.clone(),
                holder: first.map(|ticket| ticket.token),
                label: first.and_then(|ticket| self.label_of(ticket)),
                delayed_until_ms: self.delayed_until(busy),
            });
        }
        let full = |name| self.waiters(name).len() >= self.limits.waiters_per_lock_max;
        if ticket.names.iter().any(full) {
            return Err(Refusal::Full(Bound::Waiters));
        }
        // Only a client's heartbeat may end a wait: a node's own session lives on without it.
        let kind = ticket.session.and_then(|id| self.session(id)).map(|session| session.kind);
        if kind != Some(SessionKind::Client) && wait == Wait::Forever {
            return Err(Refusal::BadRequest(InvalidField::WaitNeedsDeadline));
        }
        if ticket.session.is_none() && request.is_none() {
            return Err(Refusal::BadRequest(InvalidField::WaitNeedsOwner));
        }
        if self.closes_circle(ticket) {
            self.deadlocked = Some(ticket.clone());
            return Err(Refusal::WouldDeadlock(Vec::new()));
        }
        Ok(())
    }

    pub(super) fn downgrade(&mut self, target: &Target, proof: &Proof) -> Result<Answer, Refusal> {
        let ticket = self.held(target, proof)?;
        let token = ticket.token;
        match ticket.mode {
            Mode::Permit { .. } => return Err(Refusal::WrongMode(token)),
            Mode::Shared => return Ok(Answer::Downgraded(token)),
            Mode::Exclusive => {}
        }
        if let Some(ticket) = self.ticket_mut(token) {
            ticket.mode = Mode::Shared;
        }
        self.happened(&ticket, &EventKind::Downgraded);
        self.effects.push(Effect::Downgraded { token, names: ticket.shown_names() });
        self.serve();
        Ok(Answer::Downgraded(token))
    }
}

/// The number of permits; `None` for exclusive and shared.
pub(super) fn permits(mode: Mode) -> Option<u32> {
    match mode {
        Mode::Permit { of } => Some(of),
        Mode::Exclusive | Mode::Shared => None,
    }
}

/// A request's session and its ticket's must be the same, so that both are forgotten together.
fn check_same_session(
    ticket: Option<SessionId>,
    request: Option<&RequestRef>,
) -> Result<(), Refusal> {
    let fits = match (ticket, request) {
        (_, None) | (None, Some(RequestRef::Alone(_))) => true,
        (Some(id), Some(RequestRef::InSession { session, .. })) => session.id == id,
        (Some(_), Some(RequestRef::Alone(_))) | (None, Some(RequestRef::InSession { .. })) => false,
    };
    first_broken([(!fits, InvalidField::OtherSession)])
}
