//! What the server says.

use super::asked::{Answer, Asked, Permit, Retry};
use super::desk::{Desk, Session, Waiting};
use super::held::Followed;
use super::orphans::Found;
use crate::clock::Moment;
use crate::error::{Error, How};
use crate::fate::{Fate, Health, Revocation};
use crate::hold::Hold;
use crate::lease::{Lease, Standing};
use holdfast_proto::v1::{self as proto, request, standing, to_client};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How soon after the word that a ticket was served its grant must come, over the same stream.
const GRANT_WITHIN: Duration = Duration::from_secs(1);

impl Desk {
    /// The session is open, or attached to another stream.
    pub(super) fn attached(&mut self, opened: proto::Opened, found: Vec<Found>, sent: Moment) {
        let mut is_new = false;
        match &self.session {
            Some(session) => session.lease.confirm(sent),
            None => {
                let lease = Arc::new(Lease::confirmed(self.setup.ttl, sent));
                let (id, secret) = (opened.session, opened.secret);
                self.session = Some(Session { id, secret, lease, in_jeopardy: false });
                self.lost = None;
                is_new = true;
            }
        }
        self.next_beat = sent.plus(self.setup.ttl / 4);
        self.note_trouble("the server has not answered yet".to_owned());
        for (told, _) in std::mem::take(&mut self.opening) {
            let _ = told.send(Ok(()));
        }
        self.standings.clear();
        self.stood(opened.tickets, opened.more);
        self.found(found);
        if is_new {
            self.follow_survivors();
        }
        self.look_soon();
    }

    /// How the tickets of the session stand, or some of them, if more of that is to come.
    fn stood(&mut self, tickets: Vec<proto::Standing>, more: bool) {
        self.standings.extend(tickets);
        if more {
            return;
        }
        for ticket in std::mem::take(&mut self.standings) {
            match ticket.what {
                Some(standing::What::Held(grant)) => self.granted(grant),
                Some(standing::What::Over(over)) => self.gone(over.token),
                Some(standing::What::Waiting(_)) | None => {}
            }
        }
        // How all of them stand was seen in one look.
        let waiting = self.waiting.values().filter(|waiting| waiting.asked.reader_gone());
        let readers: Vec<u64> = waiting.filter_map(|waiting| waiting.asked.upgrades()).collect();
        for reader in readers {
            self.end_reader(reader, How::Unknown);
        }
    }

    /// A reader's ticket is over because its upgrade was served, and what the upgrade got is over
    /// too.
    fn end_reader(&mut self, reader: u64, how: How) {
        let change = self.upgrade_of(reader).and_then(|upgrade| upgrade.change.as_ref());
        let hold = change.map(|change| change.hold.clone());
        self.mark_over_as_writer(hold, how);
        self.end_ticket(reader, how);
    }

    pub(super) fn mark_over_as_writer(&mut self, hold: Option<Weak<Hold>>, how: How) {
        if let Some(hold) = hold.and_then(|hold| hold.upgrade()) {
            hold.set_over_as_writer(how);
            self.give_back(hold);
        }
    }

    pub(super) fn hear(&mut self, word: proto::ToClient) {
        // What comes after the end of the lease is of no use.
        self.end_session_if_over();
        let Some(what) = word.what else { return };
        self.useful |= !matches!(what, to_client::What::TryAgain(_));
        match what {
            to_client::What::Alive(_) => self.confirmed(word.number),
            to_client::What::SessionEnded(_) => {
                let error = if self.is_closing() { Error::Closed } else { Error::SessionLost };
                self.end_session(&error);
                // It is over, and nothing is served in it any more.
                self.lost = None;
            }
            to_client::What::Granted(grant) => self.granted(grant),
            to_client::What::Ended(ended) => self.ended(ended.token, How::of(ended.how)),
            to_client::What::Revocation(asked) => self.asked_to_let_go(asked),
            to_client::What::Opened(opened) => self.stood(opened.tickets, opened.more),
            // It stays pending: another server may take it.
            to_client::What::TryAgain(again) => {
                self.note_trouble(again.why);
                self.leave = true;
            }
            what => self.answered(word.number, what),
        }
    }

    fn confirmed(&mut self, number: u64) {
        let Some(at) = self.beats.iter().position(|(beat, _)| *beat == number) else { return };
        // Those that were sent before it are confirmed with it.
        let confirmed = self.beats.drain(..=at).next_back();
        if let (Some((_, sent)), Some(session)) = (confirmed, &self.session) {
            session.lease.confirm(sent);
        }
    }

    fn answered(&mut self, number: u64, what: to_client::What) {
        let Some(mut asked) = self.pending.remove(&number) else { return };
        match (&asked.what, what) {
            (_, to_client::What::Standing(now)) => self.stands(asked, now),
            (request::What::Renew(renew), answer) => {
                // Another cluster in the place of this one may have drawn the same number again.
                let own = renew.own.as_ref().filter(|own| self.held.has(own));
                match (own.map(|own| own.token), answer) {
                    (Some(token), to_client::What::Refused(refused)) => {
                        self.not_renewed(token, refused);
                    }
                    (Some(token), _) => self.renewed(token, asked.first_sent),
                    (None, _) => {}
                }
            }
            (request::What::Cancel(own), what) => {
                let already_served = matches!(
                    &what, to_client::What::Refused(refused) if refused.code == "already_served"
                );
                let own_lease = asked.retry == Retry::ForItsTicket;
                self.cancelled(own.clone(), already_served, own_lease);
            }
            (_, to_client::What::Refused(refused)) => self.refused(asked, refused),
            (_, what) => asked.settle(Ok(Answer::Told(what))),
        }
    }

    fn refused(&mut self, mut asked: Asked, refused: proto::Refused) {
        let over = refused.code == "not_held";
        if over && let Some(token) = asked.holder() {
            // Nobody tells a holder that has outlived its session.
            self.ended(token, How::of(refused.how));
        }
        self.not_upgraded(&asked);
        if let (request::What::Downgrade(_), Some(change)) = (&asked.what, &asked.change)
            && let Some(hold) = change.hold.upgrade()
        {
            // It was not done, and won't be.
            hold.set_mode(change.before);
            self.give_back(hold);
        }
        asked.settle(Err(refused.into()));
    }

    /// A wait that was given up has left the line, or was served before.
    fn cancelled(&mut self, own: proto::Own, already_served: bool, own_lease: bool) {
        let waited = self.waiting.remove(&own.token).map(|waiting| waiting.asked);
        match waited {
            // What it was granted comes in a moment: the server answers before it tells.
            Some(asked) if already_served && asked.upgrades().is_some() => {
                self.grant_due = Some(Moment::now().plus(GRANT_WITHIN));
                let token = own.token;
                self.waiting.insert(token, Waiting { asked, own, cancelled: true, served: true });
            }
            Some(asked) if !already_served => {
                self.not_upgraded(&asked);
            }
            None if !already_served => {}
            Some(asked) => self.put(request::What::Release(own), asked.permit, own_lease),
            // It stood in line in an earlier session.
            None if own_lease => self.put(request::What::Release(own), None, true),
            // What was granted is known, and seen to.
            None => {}
        }
    }

    fn stands(&mut self, mut asked: Asked, now: proto::Standing) {
        match now.what {
            Some(standing::What::Waiting(in_line)) => {
                let own =
                    proto::Own { name: asked.name(), token: in_line.token, secret: in_line.secret };
                if self.not_upgraded(&asked) {
                    asked.tell(Err(Error::Over(How::Unknown)));
                }
                let cancelled = asked.is_abandoned();
                if cancelled {
                    let own_lease = asked.has_own_lease();
                    self.put(request::What::Cancel(own.clone()), None, own_lease);
                }
                let token = own.token;
                self.waiting.insert(token, Waiting { asked, own, cancelled, served: false });
            }
            Some(standing::What::Held(grant)) => self.serve(asked, grant),
            Some(standing::What::Over(over)) => {
                let how = How::of(over.how);
                // An upgrade that was served and is over took its shared ticket with it.
                let left_the_line = matches!(how, How::TimedOut | How::Cancelled);
                if let Some(reader) = asked.upgrades().filter(|_| !left_the_line) {
                    let hold = asked.change.as_ref().map(|change| change.hold.clone());
                    self.mark_over_as_writer(hold, how);
                    self.end_ticket(reader, how);
                }
                self.not_upgraded(&asked);
                asked.settle(Err(not_served(how)));
            }
            None => asked.tell(Err(Error::SessionLost)),
        }
    }

    /// An upgrade was not served. If its shared ticket is over nevertheless, nothing is held.
    pub(super) fn not_upgraded(&mut self, asked: &Asked) -> bool {
        let reader = asked.upgrades().filter(|_| asked.reader_gone());
        if let Some(reader) = reader {
            let hold = asked.change.as_ref().map(|change| change.hold.clone());
            self.mark_over_as_writer(hold, How::Unknown);
            self.end_ticket(reader, How::Unknown);
        }
        reader.is_some()
    }

    fn granted(&mut self, grant: proto::Grant) {
        if let Some(Waiting { asked, .. }) = self.waiting.remove(&grant.token) {
            self.serve(asked, grant);
        }
    }

    /// Hands a grant to who waits for it. If nobody does any more, it is let go.
    fn serve(&mut self, mut asked: Asked, grant: proto::Grant) {
        let (Some(session), Some(permit)) = (&self.session, asked.permit.take()) else { return };
        if let Some(shared) = asked.upgrades() {
            return self.upgraded(shared, asked, grant, permit);
        }
        let token = grant.token;
        let lease = match grant.ttl_ms {
            Some(ttl_ms) => {
                let ttl = Duration::from_millis(ttl_ms);
                let waited = Duration::from_millis(grant.waited_ms);
                Arc::new(Lease::granted(ttl, asked.first_sent, waited))
            }
            None => session.lease.clone(),
        };
        let has_own = grant.ttl_ms.is_some();
        let good = lease.standing(Moment::now()) == Standing::Good;
        let fate = Arc::new(Fate::new(lease));
        let hold = Hold::new(grant, fate.clone(), self.handles.clone(), permit);
        let own_lease = has_own.then(|| hold.own.clone());
        let session = session.secret.clone();
        let mut followed = Followed::new(fate, hold.own.secret.clone(), own_lease, session);
        if has_own && !good && !asked.is_abandoned() {
            followed.hand_out = Some((asked, hold));
        } else if let Some(unwanted) = asked.hand_out(hold) {
            return self.let_go(unwanted);
        }
        self.held.insert(token, followed);
        if has_own {
            self.look_soon();
        }
    }

    /// A reader has become the writer: its guard has the new ticket from now on, whether or not
    /// somebody waits for that. If the guard is gone, the ticket is let go.
    pub(super) fn upgraded(
        &mut self,
        shared: u64,
        mut asked: Asked,
        grant: proto::Grant,
        permit: Permit,
    ) {
        let session = self.held.remove(shared).map(|reader| reader.session).unwrap_or_default();
        let own =
            proto::Own { name: asked.name(), token: grant.token, secret: grant.secret.clone() };
        let has_own = asked.change.as_ref().is_some_and(|change| change.has_own_lease);
        let reader = asked.change.as_ref().and_then(|change| change.hold.upgrade());
        let Some(reader) = reader else {
            return self.put(request::What::Release(own), Some(permit), has_own);
        };
        let fate = reader.fate.clone();
        if has_own {
            let waited = Duration::from_millis(grant.waited_ms);
            fate.lease.confirm(Lease::granted_at(asked.first_sent, waited));
        }
        if let Health::Lost(how) = fate.health() {
            // Its holder was told to stop, and that is final. One whose time was over did not
            // finish: its lease runs out, and the next holder hears so.
            if how != How::Expired {
                self.put(request::What::Release(own), Some(permit), has_own);
            }
            reader.set_over_as_writer(how);
            asked.tell(Err(Error::Over(how)));
            return self.give_back(reader);
        }
        let writer = reader.succeeded_by(grant, permit);
        let (secret, own_lease) = (own.secret.clone(), has_own.then_some(own));
        self.held.insert(writer, Followed::new(fate, secret, own_lease, session));
        asked.tell(Ok(Answer::Upgraded));
        self.give_back(reader);
        if has_own {
            self.look_soon();
        }
    }

    /// Done with what a guard has. If the guard went meanwhile, it is let go here: there may be
    /// nobody left who could order it.
    pub(super) fn give_back(&mut self, hold: Arc<Hold>) {
        if let Some(hold) = Arc::into_inner(hold) {
            self.let_go(hold);
        }
    }

    fn renewed(&mut self, token: u64, sent: Moment) {
        let Some(followed) = self.held.get_mut(token) else { return };
        followed.renewing = false;
        followed.fate.lease.confirm(sent);
        if let Some((mut asked, hold)) = followed.hand_out.take()
            && let Some(unwanted) = asked.hand_out(hold)
        {
            self.let_go(unwanted);
        }
    }

    fn not_renewed(&mut self, token: u64, refused: proto::Refused) {
        let how = match Error::from(refused).of_holder() {
            Error::Over(how) => how,
            // A lease that can't be renewed is as good as over.
            _ => How::Unknown,
        };
        self.ended(token, how);
    }

    /// A ticket is over.
    pub(super) fn ended(&mut self, token: u64, how: How) {
        // A reader that becomes the writer: its new ticket is granted in the same step.
        if how == How::Released && self.upgrade_of(token).is_some() {
            return;
        }
        self.end_ticket(token, how);
    }

    fn end_ticket(&mut self, token: u64, how: How) {
        if let Some(Waiting { mut asked, .. }) = self.waiting.remove(&token) {
            self.not_upgraded(&asked);
            asked.settle(Err(not_served(how)));
        }
        if let Some(followed) = self.held.remove(token) {
            followed.fate.lose(how);
            if let Some((mut asked, _)) = followed.hand_out {
                asked.tell(Err(Error::Over(how)));
            }
            // Nothing is left to be upgraded.
            if let Some(upgrade) = self.upgrade_of(token) {
                upgrade.tell(Err(Error::Over(how)));
                self.abandoned = true;
                self.cancel_abandoned();
            }
        }
    }

    /// The upgrade of this shared ticket, if one was sent and is not settled.
    fn upgrade_of(&mut self, shared: u64) -> Option<&mut Asked> {
        let waiting = self.waiting.values_mut().map(|waiting| &mut waiting.asked);
        let orphans = self.orphans.iter_mut().map(|orphan| &mut orphan.asked);
        let mut asked = self.pending.values_mut().chain(waiting).chain(orphans);
        asked.find(|asked| asked.upgrades() == Some(shared))
    }

    /// A ticket ended while no server told this client how.
    fn gone(&mut self, token: u64) {
        if let Some(Waiting { mut asked, .. }) = self.waiting.remove(&token) {
            self.not_upgraded(&asked);
            let why = "its wait ended while no server could be reached";
            asked.settle(Err(Error::NotAcquired(why.to_owned())));
        }
        match self.upgrade_of(token).and_then(|upgrade| upgrade.change.as_mut()) {
            Some(change) => change.reader_gone = true,
            None => self.end_ticket(token, How::Unknown),
        }
    }

    fn asked_to_let_go(&mut self, asked: proto::RevocationAsked) {
        if let Some(followed) = self.held.get(asked.token) {
            followed.fate.ask_to_let_go(Revocation {
                by: asked.by,
                reason: asked.reason,
                within: Duration::from_millis(asked.within_ms),
                force: asked.force,
            });
        }
    }
}

/// Why an acquire ended without its turn.
fn not_served(how: How) -> Error {
    match how {
        How::TimedOut => Error::NotAcquired("its time in line was over".to_owned()),
        how => Error::Over(how),
    }
}
