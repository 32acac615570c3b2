//! The books: what was asked, who waits, which tickets are held.

use super::asked::{Ask, Asked, Change, Order, Permit, Retry, wait_ends};
use super::held::Held;
use super::lost::Lost;
use super::orphans::Orphan;
use super::watched::Watched;
use crate::calls::Calls;
use crate::clock::Moment;
use crate::error::{Error, How};
use crate::hold::{Handles, Hold};
use crate::lease::Lease;
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, request};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, mpsc as sync_mpsc};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Endpoint;

/// How a session is set up.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) servers: Vec<Endpoint>,
    pub(crate) ttl: Duration,
    pub(crate) label: Option<Bytes>,
    pub(crate) password: Option<MetadataValue<Ascii>>,
    pub(crate) patience: Duration,
}

pub(super) struct Session {
    pub(super) id: u64,
    pub(super) secret: Bytes,
    pub(super) lease: Arc<Lease>,
    /// Its guards were told that it is in jeopardy.
    pub(super) in_jeopardy: bool,
}

/// A ticket in line whose turn somebody waits for, or waited for: it is here until the server has
/// said what became of it.
pub(super) struct Waiting {
    pub(super) asked: Asked,
    /// What it takes to give it up.
    pub(super) own: proto::Own,
    /// Nobody waits for it any more, and the server is asked to take it out of the line.
    pub(super) cancelled: bool,
    /// The server has said that it was served before that; its grant is on its way.
    pub(super) served: bool,
}

pub(super) struct Closing {
    /// Dropped when it is done.
    told: Vec<Box<dyn Send>>,
    until: Moment,
}

pub(super) struct Desk {
    pub(super) setup: Setup,
    pub(super) handles: Handles,
    pub(super) calls: Arc<Calls>,
    pub(super) news: mpsc::Sender<Watched>,
    pub(super) session: Option<Session>,
    /// A session that was lost, and must surely be over before another one begins.
    pub(super) lost: Option<Lost>,
    /// Who wants to know that there is a session, and until when.
    pub(super) opening: Vec<(oneshot::Sender<Result<(), Error>>, Moment)>,
    /// Not yet sent in this session.
    pub(super) queue: VecDeque<Asked>,
    pub(super) next_request: u64,
    /// Sent, and not answered.
    pub(super) pending: BTreeMap<u64, Asked>,
    pub(super) waiting: HashMap<u64, Waiting>,
    pub(super) held: Held,
    pub(super) orphans: Vec<Orphan>,
    pub(super) orphans_seen: u64,
    /// When a grant that is on its way must have come.
    pub(super) grant_due: Option<Moment>,
    /// How tickets stand, as long as more of that is to come.
    pub(super) standings: Vec<proto::Standing>,
    closing: Option<Closing>,
    /// Who wants to know that everything dropped is let go.
    flushes: Vec<sync_mpsc::Sender<()>>,
    /// Heartbeats that are not answered, the oldest first.
    pub(super) beats: VecDeque<(u64, Moment)>,
    pub(super) beats_sent: u64,
    pub(super) next_beat: Moment,
    pub(super) next_look: Instant,
    /// Another server should be asked.
    pub(super) leave: bool,
    pub(super) useful: bool,
    /// Somebody may have stopped waiting.
    pub(super) abandoned: bool,
    /// What went wrong last.
    pub(super) trouble: String,
}

impl Desk {
    pub(super) fn new(
        setup: Setup,
        handles: Handles,
        calls: Arc<Calls>,
        news: mpsc::Sender<Watched>,
    ) -> Self {
        Self {
            setup,
            handles,
            calls,
            news,
            session: None,
            lost: None,
            opening: Vec::new(),
            queue: VecDeque::new(),
            next_request: 1,
            pending: BTreeMap::new(),
            waiting: HashMap::new(),
            held: Held::default(),
            orphans: Vec::new(),
            orphans_seen: 0,
            grant_due: None,
            standings: Vec::new(),
            closing: None,
            flushes: Vec::new(),
            beats: VecDeque::new(),
            beats_sent: 0,
            next_beat: Moment::now(),
            next_look: Instant::now(),
            leave: false,
            useful: false,
            abandoned: false,
            trouble: "no server has answered yet".to_owned(),
        }
    }

    pub(super) fn setup(&self) -> &Setup {
        &self.setup
    }

    pub(super) fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Whether there is anything to keep alive or to ask for.
    pub(super) fn wants_stream(&self) -> bool {
        let renews = || self.held.with_own_lease().next().is_some();
        self.session.is_some()
            || !self.queue.is_empty()
            || !self.opening.is_empty()
            || !self.orphans.is_empty()
            || self.has_lost_acquires()
            || (self.closing.is_none() && renews())
    }

    pub(super) fn should_leave(&mut self) -> bool {
        self.session.is_none() || std::mem::take(&mut self.leave) || self.is_done()
    }

    pub(super) fn was_useful(&mut self) -> bool {
        std::mem::take(&mut self.useful)
    }

    pub(super) fn note_trouble(&mut self, why: String) {
        if !why.is_empty() {
            self.trouble = why;
        }
    }

    pub(super) fn take(&mut self, order: Order) {
        match order {
            Order::Open(told) if self.session.is_some() => {
                let _ = told.send(Ok(()));
            }
            Order::Open(told) => self.opening.push((told, self.give_up())),
            Order::Ask(ask) => self.ask(ask),
            Order::LetGo { own, lost, permit } => {
                let own_lease = self.unfollow(&own);
                if !lost && (own_lease || self.session.is_some()) {
                    self.put(request::What::Release(own), Some(permit), own_lease);
                }
            }
            Order::Detach(own) => {
                self.unfollow(&own);
            }
            Order::Abandoned => self.abandoned = true,
            Order::Close(told) => self.close(Some(told)),
            Order::Flush(told) => self.flushes.push(told),
        }
    }

    fn ask(&mut self, Ask { what, reply, permit, change }: Ask) {
        let retry = match &what {
            request::What::Release(own) if self.unfollow(own) => Retry::ForItsTicket,
            // A release wants a certain answer, whatever becomes of the session.
            request::What::Release(_) => Retry::ForItsCaller,
            _ if self.is_closing() => {
                let _ = reply.send(Err(Error::Closed));
                return;
            }
            // Done twice, it is done once: so it may be asked again in the next session.
            request::What::Downgrade(own) => Retry::of_ticket(self.held.has_own_lease(own.token)),
            _ => Retry::InSession,
        };
        self.enqueue(what, Some(reply), Some(permit), change, retry);
    }

    /// Nobody is told of this ticket any more. Whether it has a lease of its own.
    pub(super) fn unfollow(&mut self, own: &proto::Own) -> bool {
        let followed = if self.held.has(own) { self.held.remove(own.token) } else { None };
        followed.is_some_and(|followed| followed.own_lease.is_some())
    }

    fn give_up(&self) -> Moment {
        Moment::now().plus(self.setup.patience)
    }

    fn enqueue(
        &mut self,
        what: request::What,
        reply: Option<oneshot::Sender<Result<super::Answer, Error>>>,
        permit: Option<Permit>,
        change: Option<Change>,
        retry: Retry,
    ) {
        let (first_sent, give_up) = (Moment::now(), self.give_up());
        let wait_ends = wait_ends(&what);
        let asked = Asked { what, reply, permit, change, first_sent, give_up, wait_ends, retry };
        self.queue.push_back(asked);
    }

    /// Asks for something that nobody waits for, about a ticket.
    pub(super) fn put(&mut self, what: request::What, permit: Option<Permit>, own_lease: bool) {
        self.enqueue(what, None, permit, None, Retry::of_ticket(own_lease));
    }

    /// Gives up the waits that nobody waits for any more.
    pub(super) fn cancel_abandoned(&mut self) {
        if !std::mem::take(&mut self.abandoned) {
            return;
        }
        self.queue.retain(|asked| !asked.draws_ticket() || !asked.is_abandoned());
        let mut cancels = Vec::new();
        for waiting in self.waiting.values_mut() {
            if waiting.asked.is_abandoned() && !std::mem::replace(&mut waiting.cancelled, true) {
                cancels.push((waiting.own.clone(), waiting.asked.has_own_lease()));
            }
        }
        for (own, own_lease) in cancels {
            self.put(request::What::Cancel(own), None, own_lease);
        }
        for hold in self.held.take_unwanted() {
            self.let_go(hold);
        }
    }

    /// Lets go of what nobody has any more.
    pub(super) fn let_go(&mut self, mut hold: Hold) {
        while let Some(writer) = hold.take_successor() {
            // The server has ended this one.
            drop(hold.take_over());
            // If others have the next, the last of them lets go.
            let Some(writer) = Arc::into_inner(writer) else { return };
            hold = writer;
        }
        let (own, own_lease) = (hold.own.clone(), hold.has_own_lease);
        self.unfollow(&own);
        self.put(request::What::Release(own), hold.take_over(), own_lease);
    }

    /// Tells those who wait for it that everything that was dropped is let go.
    pub(super) fn tell_flushed(&mut self) {
        if self.flushes.is_empty() {
            return;
        }
        let mut asked = self.queue.iter().chain(self.pending.values());
        let waits = || self.waiting.values().any(|waiting| waiting.cancelled);
        let lost = !self.orphans.is_empty() || self.has_lost_acquires();
        if !asked.any(Asked::is_unsettled) && !waits() && !lost {
            // Dropping them tells.
            self.flushes.clear();
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Closes the session once everything asked before is settled. What is not served by now
    /// won't be: a lock with a lease of its own would stay behind, with nobody to release it.
    pub(super) fn close(&mut self, told: Option<Box<dyn Send>>) {
        if let Some(closing) = &mut self.closing {
            closing.told.extend(told);
            return;
        }
        self.closing = Some(Closing { told: told.into_iter().collect(), until: self.give_up() });
        let (queue, pending) = (self.queue.iter_mut(), self.pending.values_mut());
        let waiting = self.waiting.values_mut().map(|waiting| &mut waiting.asked);
        let asked = queue.chain(pending).chain(waiting).chain(self.held.not_handed_out());
        for asked in asked.filter(|asked| asked.draws_ticket()) {
            asked.tell(Err(Error::Closed));
        }
        self.abandoned = true;
        self.cancel_abandoned();
    }

    /// Everything that was asked before the close is settled.
    pub(super) fn may_say_goodbye(&self) -> bool {
        // What was granted must be known before it can be let go.
        let served = || self.waiting.values().any(|waiting| waiting.served);
        self.closing.is_some() && self.queue.is_empty() && self.pending.is_empty() && !served()
    }

    /// Until when it may take to close the session.
    pub(super) fn closes_by(&self) -> Option<Moment> {
        self.closing.as_ref().map(|closing| closing.until)
    }

    pub(super) fn is_done(&self) -> bool {
        let Some(closing) = &self.closing else { return false };
        let asked = !self.queue.is_empty() || !self.pending.is_empty();
        let lost = !self.orphans.is_empty() || self.has_lost_acquires();
        (self.session.is_none() && !asked && !lost) || Moment::now() >= closing.until
    }

    pub(super) fn finish(mut self) {
        self.end_session(&Error::Closed);
        for (told, _) in std::mem::take(&mut self.opening) {
            let _ = told.send(Err(Error::Closed));
        }
        for mut asked in std::mem::take(&mut self.queue) {
            asked.tell(Err(Error::Closed));
        }
    }

    /// No session can be had. What was to be done in it is refused; but what ends or changes a ticket
    /// that is there is kept, for as long as its kind is: it may have been sent before, and a server
    /// may take it later.
    pub(super) fn refuse_session(&mut self, error: &Error) {
        for (told, _) in std::mem::take(&mut self.opening) {
            let _ = told.send(Err(error.clone()));
        }
        self.queue.retain_mut(|asked| {
            let keep = asked.retry != Retry::InSession;
            if !keep {
                asked.tell(Err(error.clone()));
            }
            keep
        });
    }

    /// The session is over: everybody who lived by it hears so. What may outlive it is asked again
    /// in the next one.
    pub(super) fn end_session(&mut self, error: &Error) {
        let lost = self.session.take();
        self.next_request = 1;
        self.standings.clear();
        let closed = *error == Error::Closed;
        let (mut unsettled_upgrade, mut acquires) = (false, BTreeMap::new());
        for (number, mut asked) in std::mem::take(&mut self.pending) {
            if asked.upgrades().is_some() && !closed {
                unsettled_upgrade = true;
                self.lose_upgrade(asked, None, error);
            } else if asked.retry != Retry::InSession {
                self.queue.push_back(asked);
            } else {
                asked.tell(Err(error.clone()));
                if let request::What::Acquire(acquire) = asked.what
                    && acquire.ttl_ms.is_some()
                {
                    acquires.insert(number, acquire);
                }
            }
        }
        for (_, Waiting { mut asked, own, cancelled, .. }) in std::mem::take(&mut self.waiting) {
            if asked.upgrades().is_some() && !closed {
                unsettled_upgrade = true;
                self.lose_upgrade(asked, Some(own.token), error);
                continue;
            }
            asked.tell(Err(error.clone()));
            // It may have been served before the session ended.
            if asked.has_own_lease() && !cancelled {
                self.put(request::What::Cancel(own), asked.permit, true);
            }
        }
        for (mut asked, hold) in self.held.take_not_handed_out() {
            asked.tell(Err(error.clone()));
            self.let_go(hold);
        }
        let unsettled = unsettled_upgrade || !acquires.is_empty();
        if let Some(Session { id, secret, .. }) = lost.filter(|_| unsettled && !closed) {
            self.lost = Some(Lost::new(id, secret, acquires));
        }
        let how = if closed { How::Closed } else { How::Expired };
        self.held.retain(|followed| {
            followed.renewing = false;
            let ends = followed.own_lease.is_none() || closed;
            if ends {
                followed.fate.lose(how);
            }
            !ends
        });
    }
}
