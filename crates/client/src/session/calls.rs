//! Requests of the application, and what it drops.

use super::io::{Answer, Call, CallId, Output, TicketRef};
use super::lost::Lost;
use super::request::{Change, Request, Retry, wait_ends};
use super::room::Room;
use super::{Moment, Session, SessionState, Waiting};
use crate::error::{EndReason, Error};
use holdfast_proto::v1::request;
use std::collections::BTreeMap;
use std::sync::Arc;

impl SessionState {
    fn give_up_at(&self) -> Moment {
        self.now.plus(self.config.timeout)
    }

    pub(super) fn open(&mut self, call: CallId) {
        if self.closed {
            self.outputs.push(Output::Complete(call, Err(Error::Closed)));
        } else if self.session.is_some() {
            self.outputs.push(Output::Complete(call, Ok(Answer::Opened)));
        } else {
            self.opening.push((call, self.give_up_at()));
        }
    }

    pub(super) fn call(&mut self, call: Call) {
        let Call { call, what, room, change } = call;
        let change = change.map(|change| {
            let unsettled = Arc::new(());
            self.changing.push((change.guard, Arc::downgrade(&unsettled)));
            Change::new(change, unsettled)
        });
        let retry = match &what {
            _ if self.closed => None,
            request::What::Release(ticket) if self.unfollow(ticket) => Some(Retry::ForItsTicket),
            // A release needs a definite answer, even if the session is lost.
            request::What::Release(_) => Some(Retry::ForItsCaller),
            _ if self.closing.is_some() => None,
            // Doing it twice has the same effect, so it may be sent again in the next session.
            request::What::Downgrade(ticket) => {
                Some(Retry::of_ticket(self.held.has_own_lease(ticket.token)))
            }
            _ => Some(Retry::InSession),
        };
        match retry {
            Some(retry) => self.enqueue(what, Some(call), Some(room), change, retry),
            None => {
                drop(room);
                self.outputs.push(Output::Complete(call, Err(Error::Closed)));
            }
        }
    }

    fn enqueue(
        &mut self,
        what: request::What,
        call: Option<CallId>,
        room: Option<Room>,
        change: Option<Change>,
        retry: Retry,
    ) {
        let (first_sent, give_up) = (self.now, self.give_up_at());
        let wait_ends = wait_ends(&what, self.now);
        let request = Request { what, call, room, change, first_sent, give_up, wait_ends, retry };
        self.queue.push_back(request);
    }

    /// Queues a request about a ticket that nobody waits for.
    pub(super) fn put(&mut self, what: request::What, room: Option<Room>, has_own_lease: bool) {
        self.enqueue(what, None, room, None, Retry::of_ticket(has_own_lease));
    }

    pub(super) fn dropped(&mut self, ticket: TicketRef, lost: bool, room: Room) {
        let has_own_lease = self.unfollow(&ticket);
        if !lost && !self.closed && (has_own_lease || self.session.is_some()) {
            self.put(request::What::Release(ticket), Some(room), has_own_lease);
        }
    }

    /// Stops tracking this ticket. Returns whether it has a lease of its own.
    pub(super) fn unfollow(&mut self, ticket: &TicketRef) -> bool {
        let held = if self.held.has(ticket) { self.held.remove(ticket.token) } else { None };
        held.is_some_and(|held| held.own_lease.is_some())
    }

    /// Releases a grant that nobody took.
    pub(super) fn give_back(&mut self, ticket: TicketRef, room: Room, has_own_lease: bool) {
        self.unfollow(&ticket);
        self.put(request::What::Release(ticket), Some(room), has_own_lease);
    }

    /// Cancels requests whose callers no longer wait.
    pub(super) fn cancel_abandoned(&mut self) {
        self.forget_callers();
        if !std::mem::take(&mut self.cancel) {
            return;
        }
        self.queue.retain(|request| !request.draws_ticket() || !request.is_abandoned());
        let mut cancels = Vec::new();
        for waiting in self.waiting.values_mut() {
            if waiting.request.is_abandoned() && !std::mem::replace(&mut waiting.cancelled, true) {
                cancels.push((waiting.ticket.clone(), waiting.request.has_own_lease()));
            }
        }
        for (ticket, has_own_lease) in cancels {
            self.put(request::What::Cancel(ticket), None, has_own_lease);
        }
        for (ticket, kept) in self.held.take_not_handed_out(Request::is_abandoned) {
            self.give_back(ticket, kept.room, true);
        }
    }

    fn forget_callers(&mut self) {
        if self.abandoned.is_empty() {
            return;
        }
        self.cancel = true;
        let mut gone = std::mem::take(&mut self.abandoned);
        gone.sort_unstable();
        let forget = |request: &mut Request| {
            request.call.take_if(|call| gone.binary_search(call).is_ok());
        };
        self.queue.iter_mut().for_each(forget);
        self.pending.values_mut().for_each(forget);
        self.waiting.values_mut().for_each(|waiting| forget(&mut waiting.request));
        self.held.for_each_not_handed_out(forget);
        self.opening.retain(|(call, _)| gone.binary_search(call).is_err());
    }

    /// Closes the session once everything requested before is settled. Requests that are not served
    /// by now are cancelled: a lock with a lease of its own would be held by nobody.
    pub(super) fn close(&mut self) {
        if self.closing.is_some() {
            return;
        }
        self.closing = Some(self.give_up_at());
        let outputs = &mut self.outputs;
        let mut end = |request: &mut Request| {
            if request.draws_ticket() {
                request.fail(outputs, Error::Closed);
            }
        };
        self.queue.iter_mut().for_each(&mut end);
        self.pending.values_mut().for_each(&mut end);
        self.waiting.values_mut().for_each(|waiting| end(&mut waiting.request));
        self.held.for_each_not_handed_out(&mut end);
        self.cancel = true;
    }

    /// Whether everything requested before the close is settled.
    pub(super) fn may_close(&self) -> bool {
        let settled = self.queue.is_empty() && self.pending.is_empty() && self.orphans.is_empty();
        // A grant must be known before it can be released.
        let served = || self.waiting.values().any(|waiting| waiting.served);
        self.closing.is_some() && settled && !served()
    }

    /// No session can be opened. Requests that need one are refused. Those that end or change an
    /// existing ticket are kept for as long as their [`Retry`] allows: they may have been sent
    /// before, and a server may accept them later.
    pub(super) fn refuse_session(&mut self, error: &Error) {
        for (call, _) in std::mem::take(&mut self.opening) {
            self.outputs.push(Output::Complete(call, Err(error.clone())));
        }
        let outputs = &mut self.outputs;
        self.queue.retain_mut(|request| {
            let keep = request.retry != Retry::InSession;
            if !keep {
                request.fail(outputs, error.clone());
            }
            keep
        });
    }

    /// The session is over: everything that depended on it is notified. Requests that may outlive
    /// it are sent again in the next one.
    pub(super) fn end_session(&mut self, error: &Error) {
        let lost = self.session.take();
        self.next_request = 1;
        self.statuses.clear();
        let closed = *error == Error::Closed;
        let (mut unsettled_upgrade, mut acquires) = (false, BTreeMap::new());
        for (number, mut request) in std::mem::take(&mut self.pending) {
            if request.upgrades().is_some() && !closed {
                unsettled_upgrade = true;
                self.lose_upgrade(request, None, error);
            } else if request.retry != Retry::InSession {
                self.queue.push_back(request);
            } else {
                request.fail(&mut self.outputs, error.clone());
                if let request::What::Acquire(acquire) = request.what
                    && acquire.ttl_ms.is_some()
                {
                    acquires.insert(number, acquire);
                }
            }
        }
        for (_, Waiting { mut request, ticket, cancelled, .. }) in std::mem::take(&mut self.waiting)
        {
            if request.upgrades().is_some() && !closed {
                unsettled_upgrade = true;
                self.lose_upgrade(request, Some(ticket.token), error);
                continue;
            }
            request.fail(&mut self.outputs, error.clone());
            // It may have been served before the session ended.
            if request.has_own_lease() && !cancelled {
                self.put(request::What::Cancel(ticket), request.room, true);
            }
        }
        for (ticket, mut kept) in self.held.take_not_handed_out(|_| true) {
            kept.request.fail(&mut self.outputs, error.clone());
            self.give_back(ticket, kept.room, true);
        }
        let unsettled = unsettled_upgrade || !acquires.is_empty();
        if let Some(Session { id, secret, .. }) = lost.filter(|_| unsettled && !closed) {
            self.lost = Some(Lost::new(id, secret, acquires, self.now));
        }
        let how = if closed { EndReason::Closed } else { EndReason::Expired };
        for held in self.held.take_ended(closed) {
            held.lose(&mut self.outputs, how);
        }
        for token in self.held.with_own_lease() {
            if let Some(held) = self.held.get_mut(token) {
                held.renewing = false;
            }
        }
    }
}
