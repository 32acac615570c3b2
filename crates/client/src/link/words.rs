//! What the server says.

use super::asked::{Answer, Asked};
use super::desk::{Desk, Session, Waiting};
use super::held::Followed;
use crate::clock::Moment;
use crate::error::{Error, How};
use crate::fate::{Fate, Revocation};
use crate::hold::Hold;
use crate::lease::{Lease, Standing};
use holdfast_proto::v1::{self as proto, request, standing, to_client};
use std::sync::Arc;
use std::time::Duration;

impl Desk {
    /// The session is open, or attached to another stream.
    pub(super) fn attached(&mut self, opened: proto::Opened, sent: Moment) {
        match &self.session {
            Some(session) => session.lease.confirm(sent),
            None => {
                let lease = Arc::new(Lease::confirmed(self.setup.ttl, sent));
                let (id, secret) = (opened.session, opened.secret);
                self.session = Some(Session { id, secret, lease, in_jeopardy: false });
            }
        }
        self.next_beat = Moment::now().plus(self.setup.ttl / 4);
        for (told, _) in std::mem::take(&mut self.opening) {
            let _ = told.send(Ok(()));
        }
        for ticket in opened.tickets {
            match ticket.what {
                Some(standing::What::Held(grant)) => self.granted(grant),
                Some(standing::What::Over(over)) => self.gone(over.token),
                Some(standing::What::Waiting(_)) | None => {}
            }
        }
        self.look_soon();
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
            }
            to_client::What::Granted(grant) => self.granted(grant),
            to_client::What::Ended(ended) => self.ended(ended.token, How::of(ended.how)),
            to_client::What::Revocation(asked) => self.asked_to_let_go(asked),
            to_client::What::Opened(_) => {}
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
            (request::What::Renew(renew), to_client::What::Refused(refused)) => {
                self.not_renewed(token_of(renew), refused);
            }
            (request::What::Renew(renew), _) => self.renewed(token_of(renew), asked.first_sent),
            // Its turn came as it was given up.
            (request::What::Cancel(own), to_client::What::Refused(refused))
                if refused.code == "already_served" =>
            {
                self.put(request::What::Release(own.clone()), None, asked.permit, false);
            }
            (_, to_client::What::Refused(refused)) => asked.tell(Err(refused.into())),
            (_, what) => asked.tell(Ok(Answer::Told(what))),
        }
    }

    fn stands(&mut self, mut asked: Asked, now: proto::Standing) {
        match now.what {
            Some(standing::What::Waiting(in_line)) => {
                let own =
                    proto::Own { name: asked.name(), token: in_line.token, secret: in_line.secret };
                if asked.is_abandoned() {
                    self.put(request::What::Cancel(own), None, asked.permit, false);
                } else {
                    self.waiting.insert(own.token, Waiting { asked, own });
                }
            }
            Some(standing::What::Held(grant)) => self.serve(asked, grant),
            Some(standing::What::Over(over)) => asked.tell(Err(not_served(How::of(over.how)))),
            None => asked.tell(Err(Error::SessionLost)),
        }
    }

    fn granted(&mut self, grant: proto::Grant) {
        if let Some(Waiting { asked, .. }) = self.waiting.remove(&grant.token) {
            self.serve(asked, grant);
        }
    }

    /// Hands a grant to who waits for it. If nobody does any more, what is handed out lets go as it
    /// is dropped.
    fn serve(&mut self, mut asked: Asked, grant: proto::Grant) {
        let (Some(session), Some(permit)) = (&self.session, asked.permit.take()) else { return };
        if let Some(shared) = asked.upgrades() {
            self.held.remove(shared);
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
        let hold = Hold::new(grant, fate.clone(), self.orders.clone(), permit);
        let own_lease = has_own.then(|| hold.own.clone());
        let mut followed = Followed { fate, own_lease, renewing: false, hand_out: None };
        if has_own && !good {
            followed.hand_out = Some((asked, hold));
        } else {
            asked.tell(Ok(Answer::Held(hold)));
        }
        self.held.insert(token, followed);
        if has_own {
            self.look_soon();
        }
    }

    fn renewed(&mut self, token: u64, sent: Moment) {
        let Some(followed) = self.held.get_mut(token) else { return };
        followed.renewing = false;
        followed.fate.lease.confirm(sent);
        if let Some((mut asked, hold)) = followed.hand_out.take() {
            asked.tell(Ok(Answer::Held(hold)));
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
        if let Some(Waiting { mut asked, .. }) = self.waiting.remove(&token) {
            asked.tell(Err(not_served(how)));
        }
        if let Some(followed) = self.held.remove(token) {
            followed.fate.lose(how);
            if let Some((mut asked, _)) = followed.hand_out {
                asked.tell(Err(Error::Over(how)));
            }
        }
    }

    /// A ticket ended while no server told this client how.
    fn gone(&mut self, token: u64) {
        if let Some(Waiting { mut asked, .. }) = self.waiting.remove(&token) {
            let why = "its wait ended while no server could be reached";
            asked.tell(Err(Error::NotAcquired(why.to_owned())));
        }
        self.ended(token, How::Unknown);
    }

    fn asked_to_let_go(&mut self, asked: proto::RevocationAsked) {
        if let Some(followed) = self.held.get(asked.token) {
            followed.fate.revocation.send_replace(Some(Revocation {
                by: asked.by,
                reason: asked.reason,
                within: Duration::from_millis(asked.within_ms),
                force: asked.force,
            }));
        }
    }
}

fn token_of(renew: &proto::RenewRequest) -> u64 {
    renew.own.as_ref().map_or(0, |own| own.token)
}

/// Why an acquire ended without its turn.
fn not_served(how: How) -> Error {
    match how {
        How::TimedOut => Error::NotAcquired("its time in line was over".to_owned()),
        how => Error::Over(how),
    }
}
