//! The books: what was asked, who waits, which tickets are held.

use super::asked::{Ask, Asked, Order, Permit};
use super::held::Held;
use crate::clock::Moment;
use crate::error::{Error, How};
use crate::lease::Lease;
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, request};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
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

/// A ticket in line whose turn somebody waits for.
pub(super) struct Waiting {
    pub(super) asked: Asked,
    /// What it takes to give it up.
    pub(super) own: proto::Own,
}

pub(super) struct Closing {
    told: Option<oneshot::Sender<()>>,
    until: Moment,
}

pub(super) struct Desk {
    pub(super) setup: Setup,
    pub(super) orders: mpsc::WeakUnboundedSender<Order>,
    pub(super) session: Option<Session>,
    /// Who wants to know that there is a session, and until when.
    pub(super) opening: Vec<(oneshot::Sender<Result<(), Error>>, Moment)>,
    /// Not yet sent in this session.
    pub(super) queue: VecDeque<Asked>,
    pub(super) next_request: u64,
    /// Sent, and not answered.
    pub(super) pending: BTreeMap<u64, Asked>,
    pub(super) waiting: HashMap<u64, Waiting>,
    pub(super) held: Held,
    closing: Option<Closing>,
    /// Heartbeats that are not answered, the oldest first.
    pub(super) beats: VecDeque<(u64, Moment)>,
    pub(super) beats_sent: u64,
    pub(super) next_beat: Moment,
    pub(super) next_look: Instant,
    /// Another server should be asked.
    pub(super) leave: bool,
    pub(super) useful: bool,
    /// Somebody may have stopped waiting.
    abandoned: bool,
    /// What went wrong last.
    pub(super) trouble: String,
}

impl Desk {
    pub(super) fn new(setup: Setup, orders: mpsc::WeakUnboundedSender<Order>) -> Self {
        Self {
            setup,
            orders,
            session: None,
            opening: Vec::new(),
            queue: VecDeque::new(),
            next_request: 1,
            pending: BTreeMap::new(),
            waiting: HashMap::new(),
            held: Held::default(),
            closing: None,
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
            Order::Ask(Ask { what, reply, permit }) => {
                let releases = match &what {
                    request::What::Release(own) => Some(self.unfollow(own.token)),
                    _ => None,
                };
                // A release wants a certain answer, whatever becomes of the session.
                self.put(what, Some(reply), Some(permit), releases.is_some());
            }
            Order::LetGo { own, lost, permit } => {
                let outlives = self.unfollow(own.token);
                if !lost && (outlives || self.session.is_some()) {
                    self.put(request::What::Release(own), None, Some(permit), outlives);
                }
            }
            Order::Abandoned => self.abandoned = true,
            Order::Close(told) => self.close(Some(told)),
        }
    }

    /// Nobody is told of this ticket any more. Whether it has a lease of its own.
    pub(super) fn unfollow(&mut self, token: u64) -> bool {
        self.held.remove(token).is_some_and(|followed| followed.own_lease.is_some())
    }

    fn give_up(&self) -> Moment {
        Moment::now().plus(self.setup.patience)
    }

    pub(super) fn put(
        &mut self,
        what: request::What,
        reply: Option<oneshot::Sender<Result<super::Answer, Error>>>,
        permit: Option<Permit>,
        outlives: bool,
    ) {
        let (first_sent, give_up) = (Moment::now(), self.give_up());
        self.queue.push_back(Asked { what, reply, permit, first_sent, give_up, outlives });
    }

    /// Gives up the waits that nobody waits for any more.
    pub(super) fn cancel_abandoned(&mut self) {
        if !std::mem::take(&mut self.abandoned) {
            return;
        }
        let abandoned = self.waiting.extract_if(|_, waiting| waiting.asked.is_abandoned());
        let abandoned: Vec<Waiting> = abandoned.map(|(_, waiting)| waiting).collect();
        for Waiting { asked, own } in abandoned {
            self.put(request::What::Cancel(own), None, asked.permit, false);
        }
        self.queue.retain(|asked| !draws_ticket(asked) || !asked.is_abandoned());
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    pub(super) fn close(&mut self, told: Option<oneshot::Sender<()>>) {
        self.closing = Some(Closing { told, until: self.give_up() });
    }

    /// Everything that was asked before the close is settled.
    pub(super) fn may_say_goodbye(&self) -> bool {
        self.closing.is_some() && self.queue.is_empty() && self.pending.is_empty()
    }

    pub(super) fn is_done(&self) -> bool {
        let Some(closing) = &self.closing else { return false };
        let settled = self.session.is_none() && self.queue.is_empty() && self.pending.is_empty();
        settled || Moment::now() >= closing.until
    }

    pub(super) fn finish(mut self) {
        self.end_session(&Error::Closed);
        self.refuse_all(&Error::Closed);
        if let Some(told) = self.closing.and_then(|closing| closing.told) {
            let _ = told.send(());
        }
    }

    /// What is wanted can't be had.
    pub(super) fn refuse_all(&mut self, error: &Error) {
        for (told, _) in std::mem::take(&mut self.opening) {
            let _ = told.send(Err(error.clone()));
        }
        for mut asked in std::mem::take(&mut self.queue) {
            asked.tell(Err(error.clone()));
        }
    }

    /// The session is over: everybody who lived by it hears so. What may outlive it is asked again
    /// in the next one.
    pub(super) fn end_session(&mut self, error: &Error) {
        self.session = None;
        self.next_request = 1;
        let closed = *error == Error::Closed;
        for (_, mut asked) in std::mem::take(&mut self.pending) {
            if asked.outlives && !closed {
                self.queue.push_back(asked);
            } else {
                asked.tell(Err(error.clone()));
            }
        }
        for (_, mut waiting) in self.waiting.drain() {
            waiting.asked.tell(Err(error.clone()));
        }
        let how = if closed { How::Closed } else { How::Expired };
        self.held.retain(|followed| {
            followed.renewing = false;
            let unheard = followed.hand_out.take();
            let ends = followed.own_lease.is_none() || unheard.is_some() || closed;
            if ends {
                followed.fate.lose(how);
            }
            if let Some((mut asked, _)) = unheard {
                asked.tell(Err(error.clone()));
            }
            !ends
        });
    }
}

/// Whether it is of no use unless somebody waits for it.
fn draws_ticket(asked: &Asked) -> bool {
    matches!(asked.what, request::What::Acquire(_) | request::What::Upgrade(_))
}
