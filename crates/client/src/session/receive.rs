//! Messages from the server over the session's stream.

use super::held::HeldTicket;
use super::io::{Answer, GuardChange, Output, TicketRef};
use super::lease::{DRIFT_PARTS, Lease, LeaseHealth};
use super::moment::Moment;
use super::request::{Request, Retry};
use super::room::Room;
use super::{Session, SessionState, Waiting};
use crate::error::{EndReason, Error};
use crate::guard_state::Revocation;
use holdfast_proto::v1::{self as proto, request, ticket_status, to_client};
use std::time::Duration;

/// How soon a grant must arrive after the server has answered, over the same stream, that its
/// ticket was served.
const GRANT_TIMEOUT: Duration = Duration::from_secs(1);

impl SessionState {
    /// The session was opened, or attached to another stream.
    pub(super) fn attached(&mut self, opened: proto::Opened, sent: Moment) {
        let is_new = match &mut self.session {
            Some(session) => {
                session.lease.confirm(sent);
                self.outputs.push(Output::SessionConfirmed(session.lease.counts_from()));
                false
            }
            None => {
                let lease = Lease::confirmed(self.config.ttl, sent);
                self.sessions += 1;
                let (id, secret, number) = (opened.session, opened.secret, self.sessions);
                self.session = Some(Session { id, secret, lease, number, in_jeopardy: false });
                self.lost = None;
                self.outputs.push(Output::SessionOpened(lease));
                true
            }
        };
        self.next_heartbeat = sent.plus(self.config.ttl / 4);
        self.note_trouble("the server has not answered yet".to_owned());
        for (call, _) in std::mem::take(&mut self.opening) {
            self.outputs.push(Output::Complete(call, Ok(Answer::Opened)));
        }
        self.statuses.clear();
        self.received_statuses(opened.tickets, opened.more);
        if is_new {
            self.follow_survivors();
        }
        self.look_soon();
    }

    /// Handles the status of the session's tickets, or part of it if there is more to come.
    fn received_statuses(&mut self, tickets: Vec<proto::TicketStatus>, more: bool) {
        self.statuses.extend(tickets);
        if more {
            return;
        }
        for ticket in std::mem::take(&mut self.statuses) {
            match ticket.what {
                Some(ticket_status::What::Held(grant)) => self.granted(grant),
                Some(ticket_status::What::Over(over)) => self.gone(over.token),
                Some(ticket_status::What::Waiting(_)) | None => {}
            }
        }
        // All of them were read at the same moment.
        let waiting = self.waiting.values().filter(|waiting| waiting.request.reader_gone());
        let readers: Vec<u64> = waiting.filter_map(|waiting| waiting.request.upgrades()).collect();
        for reader in readers {
            self.end_reader(reader, EndReason::Unknown);
        }
    }

    /// A reader's ticket is over because its upgrade was served, and the writer's ticket is over
    /// too.
    fn end_reader(&mut self, reader: u64, how: EndReason) {
        let guard = self.upgrade_of(reader).and_then(|upgrade| upgrade.guard());
        if let Some(guard) = guard {
            self.notify_guard(guard, GuardChange::OverAsWriter(how));
        }
        self.end_ticket(reader, how);
    }

    pub(super) fn handle(&mut self, message: proto::ToClient) {
        // Messages after the end of the lease are of no use.
        self.end_session_if_over();
        let Some(what) = message.what else { return };
        self.useful |= !matches!(what, to_client::What::TryAgain(_));
        match what {
            to_client::What::Alive(_) => self.confirmed(message.number),
            to_client::What::SessionEnded(_) => {
                let closing = self.closing.is_some();
                self.end_session(&if closing { Error::Closed } else { Error::SessionLost });
                // It is over on the server too: nothing is served in it any more.
                self.lost = None;
            }
            to_client::What::Granted(grant) => self.granted(grant),
            to_client::What::Ended(ended) => self.ended(ended.token, EndReason::of(ended.how)),
            to_client::What::Revocation(asked) => self.revocation_asked(asked),
            to_client::What::Opened(opened) => self.received_statuses(opened.tickets, opened.more),
            // It stays pending: another server may accept it.
            to_client::What::TryAgain(again) => {
                self.note_trouble(again.why);
                self.leave = true;
            }
            what => self.answered(message.number, what),
        }
    }

    fn confirmed(&mut self, number: u64) {
        let at = self.heartbeats.iter().position(|(heartbeat, _)| *heartbeat == number);
        let Some(at) = at else { return };
        // Heartbeats sent before this one are confirmed with it.
        let confirmed = self.heartbeats.drain(..=at).next_back();
        if let (Some((_, sent)), Some(session)) = (confirmed, &mut self.session) {
            session.lease.confirm(sent);
            self.outputs.push(Output::SessionConfirmed(session.lease.counts_from()));
        }
    }

    fn answered(&mut self, number: u64, what: to_client::What) {
        let Some(request) = self.pending.remove(&number) else { return };
        match (&request.what, what) {
            (_, to_client::What::Status(now)) => self.received_status(request, now),
            (request::What::Renew(renew), answer) => {
                // A new cluster in the place of this one may have drawn the same number.
                let ticket = renew.own.as_ref().filter(|ticket| self.held.has(ticket));
                match (ticket.map(|ticket| ticket.token), answer) {
                    (Some(token), to_client::What::Refused(refused)) => {
                        self.not_renewed(token, refused);
                    }
                    (Some(token), _) => self.renewed(token, request.first_sent),
                    (None, _) => {}
                }
            }
            (request::What::Cancel(ticket), what) => {
                let already_served = matches!(
                    &what, to_client::What::Refused(refused) if refused.code == "already_served"
                );
                let has_own_lease = request.retry == Retry::ForItsTicket;
                self.cancelled(ticket.clone(), already_served, has_own_lease);
            }
            (_, to_client::What::Refused(refused)) => self.refused(request, refused),
            (_, what) => request.settle(&mut self.outputs, Ok(Answer::Reply(what))),
        }
    }

    fn refused(&mut self, request: Request, refused: proto::Refused) {
        let over = refused.code == "not_held";
        if over && let Some(token) = request.holder() {
            // The server does not notify a holder that has outlived its session.
            self.ended(token, EndReason::of(refused.how));
        }
        self.not_upgraded(&request);
        if let (request::What::Downgrade(_), Some(change)) = (&request.what, &request.change) {
            // It was not done, and won't be.
            self.outputs.push(Output::Guard(change.guard, GuardChange::Mode(change.before)));
        }
        request.settle(&mut self.outputs, Err(refused.into()));
    }

    /// A cancelled wait has left the line, or was served before.
    fn cancelled(&mut self, ticket: TicketRef, already_served: bool, has_own_lease: bool) {
        let waited = self.waiting.remove(&ticket.token).map(|waiting| waiting.request);
        match waited {
            // Its grant will follow: the server answers before it notifies.
            Some(request) if already_served && request.upgrades().is_some() => {
                self.grant_due = Some(self.now.plus(GRANT_TIMEOUT));
                let token = ticket.token;
                let waiting = Waiting { request, ticket, cancelled: true, served: true };
                self.waiting.insert(token, waiting);
            }
            Some(request) if !already_served => {
                self.not_upgraded(&request);
            }
            None if !already_served => {}
            Some(request) => {
                self.put(request::What::Release(ticket), request.room, has_own_lease);
            }
            // It waited in an earlier session.
            None if has_own_lease => self.put(request::What::Release(ticket), None, true),
            // Its grant has already been handled.
            None => {}
        }
    }

    fn received_status(&mut self, mut request: Request, now: proto::TicketStatus) {
        match now.what {
            Some(ticket_status::What::Waiting(in_line)) => {
                let ticket = request.ticket(in_line.token, in_line.secret);
                if self.not_upgraded(&request) {
                    request.fail(&mut self.outputs, Error::Over(EndReason::Unknown));
                }
                let cancelled = request.is_abandoned();
                if cancelled {
                    let has_own_lease = request.has_own_lease();
                    self.put(request::What::Cancel(ticket.clone()), None, has_own_lease);
                }
                let token = ticket.token;
                let waiting = Waiting { request, ticket, cancelled, served: false };
                self.waiting.insert(token, waiting);
            }
            Some(ticket_status::What::Held(grant)) => self.serve(request, grant),
            Some(ticket_status::What::Over(over)) => {
                let how = EndReason::of(over.how);
                // An upgrade that was served and is over has ended its shared ticket too.
                let left_the_line = matches!(how, EndReason::TimedOut | EndReason::Cancelled);
                if let Some(reader) = request.upgrades().filter(|_| !left_the_line) {
                    self.end_as_writer(&request, how);
                    self.end_ticket(reader, how);
                }
                self.not_upgraded(&request);
                request.settle(&mut self.outputs, Err(not_served(how)));
            }
            None => request.fail(&mut self.outputs, Error::SessionLost),
        }
    }

    fn end_as_writer(&mut self, upgrade: &Request, how: EndReason) {
        if let Some(guard) = upgrade.guard() {
            self.notify_guard(guard, GuardChange::OverAsWriter(how));
        }
    }

    /// An upgrade was not served. Returns whether its shared ticket is over nevertheless, so that
    /// nothing is held.
    pub(super) fn not_upgraded(&mut self, request: &Request) -> bool {
        let reader = request.upgrades().filter(|_| request.reader_gone());
        if let Some(reader) = reader {
            self.end_as_writer(request, EndReason::Unknown);
            self.end_ticket(reader, EndReason::Unknown);
        }
        reader.is_some()
    }

    fn granted(&mut self, grant: proto::Grant) {
        if let Some(Waiting { request, .. }) = self.waiting.remove(&grant.token) {
            self.serve(request, grant);
        }
    }

    /// Hands a grant to its caller, or releases it if the caller no longer waits.
    fn serve(&mut self, mut request: Request, grant: proto::Grant) {
        let (Some(session), Some(room)) = (&self.session, request.room.take()) else { return };
        if let Some(shared) = request.upgrades() {
            return self.upgraded(shared, request, grant, room);
        }
        let ticket = TicketRef {
            name: grant.names.first().cloned().unwrap_or_default(),
            token: grant.token,
            secret: grant.secret.clone(),
        };
        let lease = grant.ttl_ms.map(|ttl_ms| {
            let waited = Duration::from_millis(grant.waited_ms);
            Lease::granted(Duration::from_millis(ttl_ms), request.first_sent, waited)
        });
        let Some(guard) = request.call else {
            return self.put(request::What::Release(ticket), Some(room), lease.is_some());
        };
        let mut held = HeldTicket::new(guard, ticket, lease, session.number);
        let unsure = lease.is_some_and(|lease| lease.health(self.now) != LeaseHealth::Good);
        if unsure {
            held.hand_out_later(request, grant, room);
        } else {
            let answer = Ok(Answer::Granted { grant, lease, room });
            self.outputs.push(Output::Complete(guard, answer));
        }
        self.hold(held);
        if lease.is_some() {
            self.look_soon();
        }
    }

    fn hold(&mut self, held: HeldTicket) {
        if let Some(older) = self.held.insert(held) {
            older.lose(&mut self.outputs, EndReason::Unknown);
        }
    }

    /// A reader has become the writer: from now on its guard has the new ticket, whether or not the
    /// caller still waits.
    pub(super) fn upgraded(
        &mut self,
        shared: u64,
        request: Request,
        grant: proto::Grant,
        room: Room,
    ) {
        let Some(change) = &request.change else { return };
        let (guard, call) = (change.guard, request.call);
        let reader = self.held.remove(shared);
        let ticket = request.ticket(grant.token, grant.secret.clone());
        let lease = change.own_ttl.map(|ttl| {
            let waited = Duration::from_millis(grant.waited_ms);
            let mut lease = Lease::granted(ttl, request.first_sent, waited);
            if let Some(before) = reader.as_ref().and_then(|reader| reader.own_lease) {
                lease.confirm(before.counts_from());
            }
            lease
        });
        if let Some(lease) = lease {
            self.notify_guard(guard, GuardChange::Confirmed(lease.counts_from()));
        }
        let session = reader.as_ref().map(|reader| reader.session).unwrap_or_default();
        let token = grant.token;
        self.outputs.push(Output::Upgraded { guard, call, grant, room });
        let mut held = HeldTicket::new(guard, ticket, lease, session);
        held.in_jeopardy = reader.is_some_and(|reader| reader.in_jeopardy);
        self.hold(held);
        if lease.is_some() {
            self.follow_survivor(token);
            self.look_soon();
        }
    }

    fn renewed(&mut self, token: u64, sent: Moment) {
        let Some(held) = self.held.get_mut(token) else { return };
        let Some(lease) = &mut held.own_lease else { return };
        held.renewing = false;
        lease.confirm(sent);
        match held.not_handed_out.take() {
            Some(kept) => {
                let ticket = held.ticket.clone();
                if let Some(room) = kept.hand_out(&mut self.outputs, held.own_lease) {
                    self.give_back(ticket, room, true);
                }
            }
            None => {
                let confirmed = GuardChange::Confirmed(lease.counts_from());
                self.outputs.push(Output::Guard(held.guard, confirmed));
            }
        }
    }

    fn not_renewed(&mut self, token: u64, refused: proto::Refused) {
        let how = match Error::from(refused).of_holder() {
            Error::Over(how) => how,
            // A lease that can't be renewed is as good as over.
            _ => EndReason::Unknown,
        };
        self.ended(token, how);
    }

    /// A ticket is over.
    pub(super) fn ended(&mut self, token: u64, how: EndReason) {
        // A reader that becomes the writer: its new ticket is granted in the same step.
        if how == EndReason::Released && self.upgrade_of(token).is_some() {
            return;
        }
        self.end_ticket(token, how);
    }

    fn end_ticket(&mut self, token: u64, how: EndReason) {
        if let Some(Waiting { request, .. }) = self.waiting.remove(&token) {
            self.not_upgraded(&request);
            request.settle(&mut self.outputs, Err(not_served(how)));
        }
        if let Some(held) = self.held.remove(token) {
            held.lose(&mut self.outputs, how);
            if let Some(mut kept) = held.not_handed_out {
                kept.request.fail(&mut self.outputs, Error::Over(how));
            }
            // There is nothing left to upgrade.
            let mut outputs = std::mem::take(&mut self.outputs);
            if let Some(upgrade) = self.upgrade_of(token) {
                upgrade.fail(&mut outputs, Error::Over(how));
                self.cancel = true;
            }
            self.outputs = outputs;
        }
    }

    /// The unsettled upgrade of this shared ticket, if one was sent.
    pub(super) fn upgrade_of(&mut self, shared: u64) -> Option<&mut Request> {
        // Changes are rare, and there may be many tickets.
        if self.changing.is_empty() {
            return None;
        }
        let waiting = self.waiting.values_mut().map(|waiting| &mut waiting.request);
        let orphans = self.orphans.iter_mut().map(|orphan| &mut orphan.request);
        let mut requests = self.pending.values_mut().chain(waiting).chain(orphans);
        requests.find(|request| request.upgrades() == Some(shared))
    }

    /// A ticket ended while the client could not be notified, so it is unknown how.
    fn gone(&mut self, token: u64) {
        if let Some(Waiting { request, .. }) = self.waiting.remove(&token) {
            self.not_upgraded(&request);
            let why = "its wait ended while no server could be reached";
            request.settle(&mut self.outputs, Err(Error::NotAcquired(why.to_owned())));
        }
        match self.upgrade_of(token).and_then(|upgrade| upgrade.change.as_mut()) {
            Some(change) => change.reader_gone = true,
            None => self.end_ticket(token, EndReason::Unknown),
        }
    }

    fn revocation_asked(&mut self, asked: proto::RevocationAsked) {
        let token = asked.token;
        let revocation = Revocation {
            by: asked.by,
            reason: asked.reason,
            within: Duration::from_millis(asked.within_ms),
            force: asked.force,
        };
        self.ask_to_let_go(token, revocation);
    }

    pub(super) fn ask_to_let_go(&mut self, token: u64, asked: Revocation) {
        if let Some(guard) = self.held.get(token).map(|held| held.guard) {
            let surely = asked.within - asked.within / DRIFT_PARTS;
            let forced_at = asked.force.then(|| self.now.plus(surely));
            self.notify_guard(guard, GuardChange::Revocation(asked, forced_at));
        }
    }
}

/// Why an acquire ended without being served.
fn not_served(how: EndReason) -> Error {
    match how {
        EndReason::TimedOut => Error::NotAcquired("its wait timed out".to_owned()),
        how => Error::Over(how),
    }
}
