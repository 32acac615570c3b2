//! The clock: heartbeats and renewals are sent in time, and whoever lives by a lease hears when it
//! is in danger or over.

use super::asked::{Asked, Retry};
use super::desk::Desk;
use super::stream::Stream;
use crate::clock::Moment;
use crate::error::{Error, How};
use crate::fate::Health;
use crate::lease::{Lease, Standing};
use holdfast_proto::v1::{self as proto, request, to_server};
use std::time::Duration;
use tokio::time::Instant;

/// Beats are numbered apart from requests.
const BEATS_FROM: u64 = 1 << 63;

/// How many looks at the clock a lease gets.
const LOOKS_PER_LEASE: u32 = 16;
const LOOK_EVERY_MIN: Duration = Duration::from_millis(5);
const LOOK_EVERY_MAX: Duration = Duration::from_millis(250);

/// How long to go on trying to let go of a lock with a lease of its own when no server answers.
/// Leases of that kind are mostly shorter; longer ones then run out by themselves.
const LET_GO_TIMEOUT: Duration = Duration::from_mins(10);

/// How long after the end of a wait the server may take to say so; then its caller is told here, and
/// the ticket is given up. And how long if the server has not even answered.
const WAIT_GRACE: Duration = Duration::from_secs(1);
const ANSWER_GRACE: Duration = Duration::from_secs(3);

impl Desk {
    pub(super) fn next_look(&self) -> Instant {
        self.next_look
    }

    /// Something has changed that may be due before the next look.
    pub(super) fn look_soon(&mut self) {
        self.next_look = self.next_look.min(Instant::now() + LOOK_EVERY_MIN);
    }

    /// Looks at the clock, and sends over the stream, if there is one, what is due.
    pub(super) fn look(&mut self, stream: Option<&Stream>) {
        let now = Moment::now();
        self.end_session_if_over();
        self.look_at_session(now, stream);
        self.look_at_own_leases(now, stream.is_some());
        self.give_up_what_takes_too_long(now);
        self.end_waits(now);
        if self.grant_due.take_if(|due| now >= *due).is_some() {
            // It was lost on the way: whoever attaches is told what was granted.
            self.leave |= self.waiting.values().any(|waiting| waiting.served);
        }
        let own = self.held.with_own_lease();
        let shortest = own.map(|(_, followed)| followed.fate.lease.ttl()).min();
        let shortest = shortest.map_or(self.setup.ttl, |own| own.min(self.setup.ttl));
        let every = (shortest / LOOKS_PER_LEASE).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX);
        self.next_look = Instant::now() + every;
    }

    pub(super) fn end_session_if_over(&mut self) {
        let over = |lease: &Lease| lease.standing(Moment::now()) == Standing::Over;
        if self.session.as_ref().is_some_and(|session| over(&session.lease)) {
            self.end_session(&Error::SessionLost);
        }
    }

    /// Whether a session that was asked for at that moment may be over by now, or before a heartbeat
    /// could confirm it.
    pub(super) fn came_too_late(&self, sent: Moment) -> bool {
        Lease::confirmed(self.setup.ttl, sent).standing(Moment::now()) != Standing::Good
    }

    fn look_at_session(&mut self, now: Moment, stream: Option<&Stream>) {
        let Some(session) = &mut self.session else { return };
        let in_jeopardy = session.lease.standing(now) != Standing::Good;
        // There may be very many guards, and a new one is good.
        if in_jeopardy || session.in_jeopardy {
            session.in_jeopardy = in_jeopardy;
            let health = if in_jeopardy { Health::Jeopardy } else { Health::Good };
            for followed in self.held.in_session() {
                followed.fate.show(health);
            }
        }
        let Some(stream) = stream else { return };
        // A server that says nothing for a third of the lease is no use.
        let oldest = self.beats.front();
        if oldest.is_some_and(|(_, sent)| sent.until(now) > self.setup.ttl / 3) {
            self.note_trouble("the server has stopped answering".to_owned());
            self.leave = true;
        } else if now >= self.next_beat {
            self.next_beat = now.plus(self.setup.ttl / 4);
            self.beat(now, stream);
        }
    }

    fn beat(&mut self, now: Moment, stream: &Stream) {
        // No number comes twice: an answer that is late must not confirm a later beat.
        self.beats_sent += 1;
        let number = BEATS_FROM + self.beats_sent;
        self.beats.push_back((number, now));
        let beat = to_server::What::Beat(proto::Beat {});
        if !stream.send(proto::ToServer { number, what: Some(beat) }) {
            self.leave = true;
        }
    }

    pub(super) fn said_goodbye(&mut self) {
        self.end_session(&Error::Closed);
    }

    fn look_at_own_leases(&mut self, now: Moment, connected: bool) {
        let (mut over, mut due) = (Vec::new(), Vec::new());
        for (token, followed) in self.held.with_own_lease() {
            let lease = &followed.fate.lease;
            let standing = lease.standing(now);
            // One that was not handed out yet may be past by its own reckoning.
            match standing {
                Standing::Over if followed.hand_out.is_none() => over.push(token),
                Standing::Good => followed.fate.show(Health::Good),
                Standing::Jeopardy if followed.hand_out.is_none() => {
                    followed.fate.show(Health::Jeopardy);
                }
                Standing::Jeopardy | Standing::Over => {}
            }
            if connected && !followed.renewing && (followed.renew_now || now >= lease.due()) {
                due.push((token, lease.ttl()));
            }
        }
        for token in over {
            self.ended(token, How::Expired);
        }
        for (token, ttl) in due {
            let Some(followed) = self.held.get_mut(token) else { continue };
            (followed.renewing, followed.renew_now) = (true, false);
            let own = followed.own_lease.clone();
            let ttl_ms = Some(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
            let renew = proto::RenewRequest { own, ttl_ms };
            self.put(request::What::Renew(renew), None, false);
        }
    }

    /// Tells those whose time in line is over, if the server has not; what they may have got
    /// nevertheless is given up.
    fn end_waits(&mut self, now: Moment) {
        let over = |asked: &Asked, grace| {
            asked.wait_ends.is_some_and(|ends| now >= ends.plus(grace)) && !asked.is_abandoned()
        };
        let grace = self.setup.patience.min(ANSWER_GRACE);
        let unsent = Error::Unreachable(self.trouble.clone());
        let unanswered = Error::unanswered(&self.trouble);
        let queue = self.queue.iter_mut().map(|asked| (asked, &unsent));
        let pending = self.pending.values_mut().map(|asked| (asked, &unanswered));
        for (asked, error) in queue.chain(pending) {
            if over(asked, grace) {
                asked.tell(Err(error.clone()));
                self.abandoned = true;
            }
        }
        let in_line = self.waiting.values_mut();
        for waiting in in_line.filter(|waiting| over(&waiting.asked, WAIT_GRACE)) {
            let why = "its time in line was over".to_owned();
            waiting.asked.tell(Err(Error::NotAcquired(why)));
            self.abandoned = true;
        }
        self.cancel_abandoned();
    }

    fn give_up_what_takes_too_long(&mut self, now: Moment) {
        let unsent = Error::Unreachable(self.trouble.clone());
        let unanswered = Error::unanswered(&self.trouble);
        let has_session = self.session.is_some();
        self.queue.retain_mut(|asked| {
            if now < asked.give_up || (has_session && asked.is_patient()) {
                return true;
            }
            // What is asked again in each session may have been sent in an earlier one.
            let sent = asked.retry != Retry::InSession;
            asked.tell(Err(if sent { unanswered.clone() } else { unsent.clone() }));
            // It was never sent, so it has no effect; but what is let go of should be.
            let in_session = has_session && asked.keeps_order();
            let for_ticket = asked.retry == Retry::ForItsTicket;
            in_session || (for_ticket && now < asked.give_up.plus(LET_GO_TIMEOUT))
        });
        for asked in self.pending.values_mut() {
            if now >= asked.give_up && !asked.is_patient() {
                // It stays pending: what it may have done must be undone.
                asked.tell(Err(unanswered.clone()));
            }
        }
        self.give_up_orphans(|orphan| now >= orphan.asked.give_up.plus(LET_GO_TIMEOUT));
        self.give_up_lost_acquires(|since| now >= since.plus(LET_GO_TIMEOUT));
        for (told, _) in self.opening.extract_if(.., |(_, give_up)| now >= *give_up) {
            let _ = told.send(Err(unsent.clone()));
        }
    }
}
