//! Everything that a store may do with the lines.
//!
//! Stores are written against [`StoreAccess`] and never see [`Lines`] itself: what is not in this
//! file is out of their reach. They draw tickets, end them (which serves those who waited) and
//! change held ones; everything else here is a query.

use super::history::EventKind;
use super::records::{Lock, Ticket};
use super::{Lines, StepBudget, TicketSpec};
use crate::command::{Door, Lease, Mode, Revoke, SessionRef, Wait};
use crate::containers::Slot;
use crate::effect::{Answer, Effect, EndReason, Ending, Forced};
use crate::ids::{SessionId, Token};
use crate::limits::Limits;
use crate::refusal::{Bound, Refusal};
use crate::text::{Label, LockName};
use crate::weight::Weight;
use std::sync::Arc;

pub(crate) trait StoreAccess {
    /// Draws a ticket and grants it if it is its turn. The caller has made sure that there is room,
    /// and that the name is free.
    fn draw(
        &mut self,
        name: LockName,
        spec: TicketSpec,
        effects: &mut Vec<Effect>,
    ) -> Option<Token>;

    /// Ends a ticket, as forced or as released, and serves those who waited for it.
    fn end(
        &mut self,
        token: Token,
        forced: Option<Arc<Forced>>,
        steps: &mut StepBudget,
        effects: &mut Vec<Effect>,
    );

    /// Ends a ticket that nobody waits for, so that something else can take its place.
    fn make_way(&mut self, token: Token, forced: Option<Arc<Forced>>, effects: &mut Vec<Effect>);

    /// Gives a held ticket another lease.
    fn set_lease(&mut self, token: Token, lease: Lease);

    /// Gives the holder of a name another label. The ticket keeps `change`, by which the store
    /// distinguishes this label from earlier ones.
    fn relabel(
        &mut self,
        token: Token,
        name: LockName,
        label: Label,
        change: u64,
        effects: &mut Vec<Effect>,
    );

    /// Ends a ticket for this reason, and serves those waiting for it.
    fn end_as(
        &mut self,
        token: Token,
        how: EndReason,
        forced: Option<Arc<Forced>>,
        steps: &mut StepBudget,
        effects: &mut Vec<Effect>,
    );

    /// Turns the ticket of an exclusive holder into a shared one; false if it has none.
    fn downgrade(&mut self, token: Token, effects: &mut Vec<Effect>) -> bool;

    /// Asks a holder to release.
    fn revoke(&mut self, revoke: Revoke, effects: &mut Vec<Effect>) -> Result<Answer, Refusal>;

    /// Draws a number from the counter of all tickets, without a ticket.
    fn next_number(&mut self) -> u64;

    /// The last number drawn.
    fn last_number(&self) -> u64;

    /// Whether a session is alive and the secret is right.
    fn check_session(&self, session: &SessionRef) -> Result<(), Refusal>;

    /// Whether a session is alive.
    fn session_lives(&self, session: SessionId) -> bool;

    /// Whether a ticket may enter the line of a name after this many others.
    fn check_entry(&self, name: &LockName, mode: Mode, before: usize) -> Result<(), Refusal>;

    /// How many tickets are in the line of a name.
    fn line_len(&self, name: &LockName) -> usize;

    /// The tickets in the line of a name, in order.
    fn tickets_in_line(&self, name: &LockName) -> Vec<Token>;

    /// The names of a ticket; empty if it is over.
    fn ticket_locks(&self, token: Token) -> Vec<LockName>;

    /// The label of a ticket.
    fn ticket_label(&self, token: Token) -> Option<Label>;

    /// Whether a ticket is being served.
    fn is_held(&self, token: Token) -> bool;

    /// Accounts for a change of a store's record: what it took before and what it takes now.
    fn weigh(&mut self, before: Weight, after: Weight);

    /// Logical time in milliseconds.
    fn now_ms(&self) -> u64;

    /// The leader's wall clock, for display.
    fn wall_ms(&self) -> u64;

    fn limits(&self) -> &Limits;

    /// The line of a name; `None` if nobody is in it and nothing is remembered about it.
    fn line(&self, name: &LockName) -> Option<LineView<'_>>;

    /// The first holder of a name.
    fn holder(&self, name: &LockName) -> Option<HolderView<'_>>;

    /// Whether a new ticket would be served at once.
    fn is_free(&self, name: &LockName, mode: Mode) -> bool;

    /// The refusal of a try, which names the holder in the way.
    fn busy(&self, name: &LockName) -> Refusal;

    /// Checks that there is room for this much more, if it is more at all.
    fn check_growth(&self, more: Weight) -> Result<(), Refusal>;

    /// How many tickets there are.
    fn tickets(&self) -> usize;

    /// How many locks are held.
    fn held_locks(&self) -> usize;

    /// How many events of locks there have been: rises whenever a holder comes or goes.
    fn events_numbered(&self) -> u64;

    /// Up to `limit` names of locks that begin with `prefix` and come after `after`, including
    /// those that are only remembered.
    fn names(&self, prefix: &[u8], after: Option<&LockName>, limit: usize) -> Vec<LockName>;
}

impl StoreAccess for Lines {
    fn draw(
        &mut self,
        name: LockName,
        spec: TicketSpec,
        effects: &mut Vec<Effect>,
    ) -> Option<Token> {
        self.draw_ticket(vec![name], spec, Wait::Try, None, effects)
    }

    fn end(
        &mut self,
        token: Token,
        forced: Option<Arc<Forced>>,
        steps: &mut StepBudget,
        effects: &mut Vec<Effect>,
    ) {
        self.end_ticket(token, how(forced.as_ref()), forced, steps, effects);
    }

    fn make_way(&mut self, token: Token, forced: Option<Arc<Forced>>, effects: &mut Vec<Effect>) {
        let (how, is_confirmed_holder) = (how(forced.as_ref()), self.is_confirmed_holder(token));
        let ticket = self.take_out(token, how, forced, is_confirmed_holder, effects);
        for slot in ticket.iter().flat_map(Ticket::locks) {
            self.drop_lock_if_over(slot);
        }
    }

    fn set_lease(&mut self, token: Token, lease: Lease) {
        if let Some(slot) = self.ticket_slot(token) {
            self.change_lease(slot, lease);
        }
    }

    fn relabel(
        &mut self,
        token: Token,
        name: LockName,
        label: Label,
        change: u64,
        effects: &mut Vec<Effect>,
    ) {
        let Some(slot) = self.ticket_slot(token) else { return };
        let kept = label.clone();
        self.change_ticket(slot, |ticket| {
            ticket.label = Some(kept);
            ticket.extra_mut().relabelled = change;
        });
        self.record(name.clone(), token, Some(label.clone()), EventKind::Relabelled);
        effects.push(Effect::Relabelled { token, name, label });
    }

    fn end_as(
        &mut self,
        token: Token,
        how: EndReason,
        forced: Option<Arc<Forced>>,
        steps: &mut StepBudget,
        effects: &mut Vec<Effect>,
    ) {
        self.end_ticket(token, how, forced, steps, effects);
    }

    fn downgrade(&mut self, token: Token, effects: &mut Vec<Effect>) -> bool {
        let slot = self.ticket_slot(token).filter(|slot| {
            let ticket = self.data.tickets.get(*slot);
            ticket.is_some_and(|ticket| ticket.held && ticket.mode == Mode::Exclusive)
        });
        let Some(slot) = slot else { return false };
        self.become_shared(slot, effects);
        true
    }

    fn revoke(&mut self, revoke: Revoke, effects: &mut Vec<Effect>) -> Result<Answer, Refusal> {
        Lines::revoke(self, revoke, effects)
    }

    fn next_number(&mut self) -> u64 {
        Lines::next_number(self).0
    }

    fn last_number(&self) -> u64 {
        self.data.counter
    }

    fn check_session(&self, session: &SessionRef) -> Result<(), Refusal> {
        Lines::check_session(self, session).map(|_| ())
    }

    fn session_lives(&self, session: SessionId) -> bool {
        self.session(session).is_some_and(|session| session.dying.is_none())
    }

    fn check_entry(&self, name: &LockName, mode: Mode, before: usize) -> Result<(), Refusal> {
        self.check_line(name, mode)?;
        self.check_lines_not_full(std::slice::from_ref(name))?;
        if self.data.tickets.len().saturating_add(before) >= self.limits.tickets_max {
            return Err(Refusal::Full(Bound::Tickets));
        }
        Ok(())
    }

    fn line_len(&self, name: &LockName) -> usize {
        self.line(name).map_or(0, |line| line.lock.line_len as usize)
    }

    fn tickets_in_line(&self, name: &LockName) -> Vec<Token> {
        let line = self.line(name);
        let tickets = line.map(|line| self.index.sets.lines.iter(line.slot, line.lock).collect());
        tickets.unwrap_or_default()
    }

    fn ticket_locks(&self, token: Token) -> Vec<LockName> {
        let ticket = self.ticket(token);
        ticket.map_or(Vec::new(), |ticket| self.names_of(ticket).as_slice().to_vec())
    }

    fn ticket_label(&self, token: Token) -> Option<Label> {
        self.label_of(self.ticket(token)?)
    }

    fn is_held(&self, token: Token) -> bool {
        self.ticket(token).is_some_and(|ticket| ticket.held)
    }

    fn weigh(&mut self, before: Weight, after: Weight) {
        self.weigh_change(before, after);
    }

    fn now_ms(&self) -> u64 {
        self.data.clock.now_ms
    }

    fn wall_ms(&self) -> u64 {
        self.data.clock.wall_ms
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn line(&self, name: &LockName) -> Option<LineView<'_>> {
        let slot = self.lock_slot(name)?;
        Some(LineView { lines: self, slot, lock: self.data.locks.get(slot)? })
    }

    fn holder(&self, name: &LockName) -> Option<HolderView<'_>> {
        self.line(name)?.holder()
    }

    fn is_free(&self, name: &LockName, mode: Mode) -> bool {
        self.free_for(name, mode)
    }

    fn busy(&self, name: &LockName) -> Refusal {
        self.busy_but_for(name, None)
    }

    fn check_growth(&self, more: Weight) -> Result<(), Refusal> {
        if self.counted(more) > 0 { self.check_bytes(more) } else { Ok(()) }
    }

    fn tickets(&self) -> usize {
        self.data.tickets.len()
    }

    fn held_locks(&self) -> usize {
        self.index.sets.held_locks
    }

    fn events_numbered(&self) -> u64 {
        self.data.history.next_number
    }

    fn names(&self, prefix: &[u8], after: Option<&LockName>, limit: usize) -> Vec<LockName> {
        self.index.order.page(prefix, after, limit)
    }
}

fn how(forced: Option<&Arc<Forced>>) -> EndReason {
    if forced.is_some() { EndReason::Forced } else { EndReason::Released }
}

/// A line as a store sees it.
#[derive(Clone, Copy)]
pub(crate) struct LineView<'a> {
    lines: &'a Lines,
    slot: Slot,
    lock: &'a Lock,
}

impl<'a> LineView<'a> {
    /// The number of holders.
    pub(crate) fn holding(&self) -> u32 {
        self.lock.holders
    }

    pub(crate) fn waiting(&self) -> u32 {
        self.lock.waiters()
    }

    /// Whether it has any tickets, held or waiting.
    pub(crate) fn has_tickets(&self) -> bool {
        self.lock.line_len > 0
    }

    /// Whether there is a lock-delay.
    pub(crate) fn is_delayed(&self) -> bool {
        self.lock.delayed_until_ms().is_some()
    }

    /// How the holder ended that the lock-delay follows, as far as that is still known. After a
    /// restore, a lock may be marked although its holder lives: that one has not ended.
    pub(crate) fn last_death(&self) -> Option<&'a Ending> {
        let past = self.lock.past.as_deref()?;
        let death = past.death.as_ref().map(|death| &death.ending);
        let mut endings = death.into_iter().chain(past.last.as_ref()).map(|ending| &**ending);
        endings.find(|ending| self.lines.ticket(ending.token).is_none())
    }

    fn holder(self) -> Option<HolderView<'a>> {
        let head = self.lock.head().filter(|_| self.lock.holders > 0)?;
        Some(HolderView { line: self, ticket: self.lines.ticket(head)? })
    }
}

/// The first holder of a line as a store sees it.
#[derive(Clone, Copy)]
pub(crate) struct HolderView<'a> {
    line: LineView<'a>,
    ticket: &'a Ticket,
}

impl<'a> HolderView<'a> {
    pub(crate) fn line(&self) -> LineView<'a> {
        self.line
    }

    pub(crate) fn token(&self) -> Token {
        self.ticket.number
    }

    pub(crate) fn door(&self) -> Door {
        self.ticket.door
    }

    /// Its label: its own, or else its session's.
    pub(crate) fn label(&self) -> Option<Label> {
        self.line.lines.label_of(self.ticket)
    }

    /// Its own label.
    pub(crate) fn own_label(&self) -> Option<&'a Label> {
        self.ticket.label.as_ref()
    }

    /// When its lease ends; `None` if it has no deadline.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.ticket.due()
    }

    /// The store's change at which it was relabelled; 0 if it has its original label.
    pub(crate) fn relabelled(&self) -> u64 {
        self.ticket.relabelled()
    }

    /// The last ticket in its line, which may be itself.
    pub(crate) fn last_in_line(&self) -> Token {
        let LineView { lines, slot, lock } = self.line;
        lines.index.sets.lines.iter(slot, lock).next_back().unwrap_or(self.ticket.number)
    }

    /// Whether it is the only one that may hold the lock, and has been notified.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.line.lock.exclusive && !self.ticket.is_unconfirmed()
    }

    /// Whether its death would hold up the line.
    pub(crate) fn has_lock_delay(&self) -> bool {
        self.ticket.extra.as_ref().is_some_and(|extra| extra.lock_delay_ms > 0)
    }

    /// Whether its label is all the proof that is needed: it is the only exclusive holder of one
    /// name, not tied to a session's heartbeat, and came through a door without secrets.
    pub(crate) fn is_known_by_label(&self) -> bool {
        let Self { line, ticket } = self;
        line.lock.holders == 1
            && ticket.door != Door::Native
            && ticket.secret.is_none()
            && ticket.mode == Mode::Exclusive
            && ticket.lease != Lease::Session
            && !ticket.is_unconfirmed()
            && !ticket.has_several_locks()
    }

    pub(crate) fn weight(&self) -> Weight {
        self.ticket.weight()
    }
}
