//! The whole of what a store may ask of the lines.
//!
//! Stores are written against [`StoreAccess`] and never see [`Lines`] itself: what is not in this
//! file is out of their reach. They draw tickets, end them (which serves those who waited) and
//! change those that are held; everything else here is a question.

use super::history::What;
use super::records::{Lock, Ticket};
use super::{Lines, Steps, TicketSpec};
use crate::command::{Door, Lease, Mode, Wait};
use crate::containers::Slot;
use crate::effect::{Effect, Forced, How};
use crate::ids::Token;
use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::text::{Label, LockName};
use crate::weight::Weight;
use std::sync::Arc;

pub(crate) trait StoreAccess {
    /// Draws a ticket, which is served if its turn is now. The caller has made sure that there is
    /// room, and that the name is free.
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
        steps: &mut Steps,
        effects: &mut Vec<Effect>,
    );

    /// Ends a ticket that nobody waits for, so that something else can take its place.
    fn make_way(&mut self, token: Token, forced: Option<Arc<Forced>>, effects: &mut Vec<Effect>);

    /// Gives a held ticket another lease.
    fn set_lease(&mut self, token: Token, lease: Lease);

    /// Lets the holder of a name call itself something else. The ticket keeps `change`, by which the
    /// store knows this label from earlier ones.
    fn relabel(
        &mut self,
        token: Token,
        name: LockName,
        label: Label,
        change: u64,
        effects: &mut Vec<Effect>,
    );

    /// Counts what a record of the store takes now and took before.
    fn weigh(&mut self, before: Weight, after: Weight);

    /// Logical time in milliseconds.
    fn now_ms(&self) -> u64;

    fn limits(&self) -> &Limits;

    /// The line of a name; none if nobody stands there and nothing is remembered of it.
    fn line(&self, name: &LockName) -> Option<LineView<'_>>;

    /// The first of those being served under a name.
    fn holder(&self, name: &LockName) -> Option<HolderView<'_>>;

    /// Whether a new ticket would be served at once.
    fn is_free(&self, name: &LockName, mode: Mode) -> bool;

    /// The refusal of a try: who is in the way.
    fn busy(&self, name: &LockName) -> Refusal;

    /// Whether there is room for so much more, if it is more at all.
    fn check_growth(&self, more: Weight) -> Result<(), Refusal>;

    /// How many tickets there are.
    fn tickets(&self) -> usize;

    /// How many locks are held.
    fn held_locks(&self) -> usize;

    /// How many events of locks there have been: higher whenever a holder has come or gone.
    fn events_numbered(&self) -> u64;

    /// Up to `limit` names of locks that begin with `prefix` and come after `after`, also of those
    /// that are only remembered.
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
        steps: &mut Steps,
        effects: &mut Vec<Effect>,
    ) {
        self.end_ticket(token, how(forced.as_ref()), forced, steps, effects);
    }

    fn make_way(&mut self, token: Token, forced: Option<Arc<Forced>>, effects: &mut Vec<Effect>) {
        let (how, was_told) = (how(forced.as_ref()), self.was_told(token));
        let ticket = self.take_out(token, how, forced, was_told, effects);
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
        self.record(name.clone(), token, Some(label.clone()), What::Relabelled);
        effects.push(Effect::Relabelled { token, name, label });
    }

    fn weigh(&mut self, before: Weight, after: Weight) {
        self.weigh_change(before, after);
    }

    fn now_ms(&self) -> u64 {
        self.data.clock.now_ms
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

fn how(forced: Option<&Arc<Forced>>) -> How {
    if forced.is_some() { How::Forced } else { How::Released }
}

/// A line as a store sees it.
#[derive(Clone, Copy)]
pub(crate) struct LineView<'a> {
    lines: &'a Lines,
    slot: Slot,
    lock: &'a Lock,
}

impl<'a> LineView<'a> {
    /// How many are being served.
    pub(crate) fn holding(&self) -> u32 {
        self.lock.holders
    }

    pub(crate) fn waiting(&self) -> u32 {
        self.lock.waiters()
    }

    /// Whether anybody stands in it, served or not.
    pub(crate) fn has_tickets(&self) -> bool {
        self.lock.line_len > 0
    }

    /// Whether a lock-delay runs.
    pub(crate) fn is_delayed(&self) -> bool {
        self.lock.delayed_until_ms().is_some()
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

    /// What it calls itself: its own label, or else its session's.
    pub(crate) fn label(&self) -> Option<Label> {
        self.line.lines.label_of(self.ticket)
    }

    /// The label that it has of its own.
    pub(crate) fn own_label(&self) -> Option<&'a Label> {
        self.ticket.label.as_ref()
    }

    /// When its lease ends; none if it has no deadline.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.ticket.due()
    }

    /// At which change of a store it got another label; 0 if it has its first one.
    pub(crate) fn relabelled(&self) -> u64 {
        self.ticket.relabelled()
    }

    /// The last ticket in its line, which may be its own.
    pub(crate) fn last_in_line(&self) -> Token {
        let LineView { lines, slot, lock } = self.line;
        lines.index.sets.lines.iter(slot, lock).next_back().unwrap_or(self.ticket.number)
    }

    /// Whether it is the only one that may hold the lock, and has been told so.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.line.lock.exclusive && !self.ticket.is_unconfirmed()
    }

    /// Whether its death would hold up the line.
    pub(crate) fn has_lock_delay(&self) -> bool {
        self.ticket.extra.as_ref().is_some_and(|extra| extra.lock_delay_ms > 0)
    }

    /// Whether its label is all that it takes to speak for it: it is the one exclusive holder of one
    /// name, by no session's heartbeat, through a door without secrets.
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
