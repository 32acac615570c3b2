//! Timers: sends heartbeats and renewals, notifies holders when a lease is in jeopardy or over, and
//! gives up on what takes too long.

use super::SessionState;
use super::io::Output;
use super::lease::{Lease, LeaseHealth};
use super::moment::Moment;
use super::request::{Request, Retry};
use crate::error::{EndReason, Error};
use holdfast_proto::v1::{self as proto, request};
use std::time::Duration;

/// How often time is checked during a lease.
const LOOKS_PER_LEASE: u32 = 16;
const LOOK_EVERY_MIN: Duration = Duration::from_millis(5);
/// Bounds how long it takes to notice that the machine slept.
const LOOK_EVERY_MAX: Duration = Duration::from_millis(250);

/// How long to keep trying to release a lock with a lease of its own when no server answers. Such
/// leases are usually shorter; longer ones then run out on their own.
const LET_GO_TIMEOUT: Duration = Duration::from_mins(10);

/// How long after the end of a wait the server may take to report it. After that the call fails
/// here, and the ticket is given up.
const WAIT_GRACE: Duration = Duration::from_secs(1);

/// Like [`WAIT_GRACE`], for a request that the server has not answered at all.
const ANSWER_GRACE: Duration = Duration::from_secs(3);

impl SessionState {
    /// Something has changed that may be due before the next check.
    pub(super) fn look_soon(&mut self) {
        self.next_look = self.next_look.min(self.now.plus(LOOK_EVERY_MIN));
    }

    /// Checks the time, and does what is due.
    pub(super) fn look(&mut self) {
        self.end_session_if_over();
        self.look_at_session();
        self.look_at_own_leases();
        self.give_up_what_takes_too_long();
        self.end_waits();
        self.end_searches();
        if self.grant_due.take_if(|due| self.now >= *due).is_some() {
            // It was lost on the way: attaching to another server returns it.
            self.leave |= self.waiting.values().any(|waiting| waiting.served);
        }
        self.next_look = self.next_look_at();
    }

    /// Often enough for the shortest lease, and when the next one ends.
    fn next_look_at(&self) -> Moment {
        let session = self.session.as_ref().map(|session| session.lease);
        let (mut shortest, mut end) = (self.config.ttl, self.now.plus(LOOK_EVERY_MAX));
        for lease in self.held.own_leases().chain(session) {
            shortest = shortest.min(lease.ttl());
            let ends = lease.ends();
            if ends > self.now {
                end = end.min(ends);
            }
        }
        let every = (shortest / LOOKS_PER_LEASE).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX);
        end.min(self.now.plus(every))
    }

    pub(super) fn end_session_if_over(&mut self) {
        let session = self.session.as_ref();
        if session.is_some_and(|session| session.lease.health(self.now) == LeaseHealth::Over) {
            self.end_session(&Error::SessionLost);
        }
    }

    fn look_at_session(&mut self) {
        let Some(session) = &mut self.session else { return };
        let in_jeopardy = session.lease.health(self.now) != LeaseHealth::Good;
        // There may be very many guards, and a new one is good.
        if in_jeopardy || session.in_jeopardy {
            session.in_jeopardy = in_jeopardy;
            for held in self.held.in_session() {
                held.show(&mut self.outputs, in_jeopardy);
            }
        }
        let Some(stream) = self.stream() else { return };
        // Leave a server that has not answered for a third of the lease.
        let oldest = self.heartbeats.front();
        if oldest.is_some_and(|(_, sent)| sent.until(self.now) > self.config.ttl / 3) {
            self.note_trouble("the server has stopped answering".to_owned());
            self.leave = true;
        } else if self.now >= self.next_heartbeat {
            self.next_heartbeat = self.now.plus(self.config.ttl / 4);
            self.send_heartbeat(stream);
        }
    }

    fn look_at_own_leases(&mut self) {
        for token in self.held.with_own_lease() {
            let unsettled = !self.orphans.is_empty() && self.upgrade_of(token).is_some();
            let Some(held) = self.held.get_mut(token) else { continue };
            let Some(lease) = held.own_lease else { continue };
            // A ticket that was not handed out may be over by its own lease.
            match lease.health(self.now) {
                _ if held.not_handed_out.is_some() => {}
                LeaseHealth::Over => {
                    self.ended(token, EndReason::Expired);
                    continue;
                }
                health => held.show(&mut self.outputs, health == LeaseHealth::Jeopardy),
            }
            let due = held.renew_now || self.now >= lease.due();
            if due && !held.renewing && !unsettled && self.link.is_up() {
                (held.renewing, held.renew_now) = (true, false);
                let (own, ttl_ms) = (Some(held.ticket.clone()), Some(lease.ttl_ms()));
                let renew = proto::RenewRequest { own, ttl_ms };
                self.put(request::What::Renew(renew), None, false);
            }
        }
    }

    /// Whether a session that was requested at that moment may be over by now, or before a
    /// heartbeat could confirm it.
    pub(super) fn came_too_late(&self, lease: Lease) -> bool {
        lease.health(self.now) != LeaseHealth::Good
    }

    /// Fails the calls whose wait has timed out but not been reported by the server; tickets that
    /// they may have got are given up.
    fn end_waits(&mut self) {
        let now = self.now;
        let over = |request: &Request, grace| {
            request.wait_ends.is_some_and(|ends| now >= ends.plus(grace)) && !request.is_abandoned()
        };
        let grace = self.config.timeout.min(ANSWER_GRACE);
        for request in self.queue.iter_mut().filter(|request| over(request, grace)) {
            request.fail(&mut self.outputs, Error::Unreachable(self.trouble.clone()));
            self.cancel = true;
        }
        for request in self.pending.values_mut().filter(|request| over(request, grace)) {
            request.fail(&mut self.outputs, Error::unanswered(&self.trouble));
            self.cancel = true;
        }
        let (outputs, trouble, cancel) = (&mut self.outputs, &self.trouble, &mut self.cancel);
        self.held.for_each_not_handed_out(|request| {
            // An acquire that does not wait in line times out like any other request.
            let tried_too_long = !request.waits_in_line() && now >= request.give_up;
            if over(request, grace) || (tried_too_long && !request.is_abandoned()) {
                request.fail(outputs, Error::unanswered(trouble));
                *cancel = true;
            }
        });
        let in_line = self.waiting.values_mut();
        for waiting in in_line.filter(|waiting| over(&waiting.request, WAIT_GRACE)) {
            let why = "its wait timed out".to_owned();
            waiting.request.fail(&mut self.outputs, Error::NotAcquired(why));
            self.cancel = true;
        }
    }

    fn give_up_what_takes_too_long(&mut self) {
        let (now, has_session) = (self.now, self.session.is_some());
        let (outputs, trouble) = (&mut self.outputs, &self.trouble);
        self.queue.retain_mut(|request| {
            if now < request.give_up || (has_session && request.waits_in_line()) {
                return true;
            }
            // A request that is sent again in each session may have been sent in an earlier one.
            let sent = request.retry != Retry::InSession;
            let unsent = || Error::Unreachable(trouble.clone());
            request.fail(outputs, if sent { Error::unanswered(trouble) } else { unsent() });
            // It was never sent, so it has no effect; but a release should still be sent.
            let in_session = has_session && request.keeps_order();
            let for_ticket = request.retry == Retry::ForItsTicket;
            in_session || (for_ticket && now < request.give_up.plus(LET_GO_TIMEOUT))
        });
        for request in self.pending.values_mut() {
            if now >= request.give_up && !request.waits_in_line() {
                // It stays pending: what it may have done must be undone.
                request.fail(outputs, Error::unanswered(trouble));
            }
        }
        for (call, _) in self.opening.extract_if(.., |(_, give_up)| now >= *give_up) {
            let error = Error::Unreachable(trouble.clone());
            outputs.push(Output::Complete(call, Err(error)));
        }
        self.give_up_orphans(|orphan| now >= orphan.request.give_up.plus(LET_GO_TIMEOUT));
        self.give_up_lost_acquires(|since| now >= since.plus(LET_GO_TIMEOUT));
    }
}
