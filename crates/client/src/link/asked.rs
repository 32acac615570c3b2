//! What the task is asked to do, and what it answers.

use crate::clock::Moment;
use crate::error::Error;
use crate::gate::Changing;
use crate::hold::Hold;
use crate::lock::FOREVER;
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, request, to_client};
use std::sync::{Weak, mpsc as sync_mpsc};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Room for one ticket or one question: so nothing here grows without a bound.
pub(crate) type Permit = OwnedSemaphorePermit;

/// What the task is asked to do.
pub(crate) enum Order {
    /// Tells when there is a session.
    Open(oneshot::Sender<Result<(), Error>>),
    Ask(Ask),
    /// A held ticket that nobody has any more; `lost` if its holder knew that it was over.
    LetGo {
        own: proto::Own,
        lost: bool,
        permit: Permit,
    },
    /// A ticket with a lease of its own that is somebody else's to renew and release from now on.
    Detach(proto::Own),
    /// Somebody does not wait for its answer any more.
    Abandoned,
    /// Closes the session. What comes with it is dropped when that is done.
    Close(Box<dyn Send>),
    /// Tells when everything that was dropped before is let go.
    Flush(sync_mpsc::Sender<()>),
}

/// A request, and where its answer goes.
pub(crate) struct Ask {
    pub(crate) what: request::What,
    pub(crate) reply: oneshot::Sender<Result<Answer, Error>>,
    pub(crate) permit: Permit,
    /// For an upgrade or a downgrade.
    pub(crate) change: Option<Change>,
}

/// A change of the mode that a ticket is held in. Whatever the server decides is what its guard
/// says from then on, whether or not its caller still waits for the answer.
pub(crate) struct Change {
    pub(crate) hold: Weak<Hold>,
    /// What the ticket was held in before.
    pub(crate) before: proto::Mode,
    /// Whether the ticket may outlive its session.
    pub(crate) has_own_lease: bool,
    /// For an upgrade: the shared ticket is over. If the upgrade was not served in that step,
    /// nothing is held any more.
    pub(crate) reader_gone: bool,
    /// Other requests about the ticket wait for this: until the change is settled, nobody knows
    /// which ticket they would be about.
    pub(crate) _changing: Changing,
}

/// What came of it.
pub(crate) enum Answer {
    Told(to_client::What),
    /// For an acquire: its turn has come.
    Held(Hold),
    /// For an upgrade: its turn has come, and the guard has the new ticket.
    Upgraded,
}

/// For how long a request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    /// While its session lives: what it is about does not outlive that.
    InSession,
    /// Also in the next session, until its caller gives up.
    ForItsCaller,
    /// Also in the next session, whoever waits for it: its ticket has a lease of its own, and may
    /// be held by nobody until that runs out.
    ForItsTicket,
}

impl Retry {
    /// For what ends or changes a ticket.
    pub(super) fn of_ticket(has_own_lease: bool) -> Self {
        if has_own_lease { Self::ForItsTicket } else { Self::InSession }
    }
}

/// A request until it is settled.
pub(super) struct Asked {
    pub(super) what: request::What,
    /// None if nobody wants to know.
    pub(super) reply: Option<oneshot::Sender<Result<Answer, Error>>>,
    /// None for what keeps an older ticket alive or ends it: that one has room already.
    pub(super) permit: Option<Permit>,
    pub(super) change: Option<Change>,
    pub(super) first_sent: Moment,
    pub(super) give_up: Moment,
    /// For what stands in line: when its time there is over, by this client's clock.
    pub(super) wait_ends: Option<Moment>,
    pub(super) retry: Retry,
}

/// When the time in line of a request is over; none if it does not stand in line, or has no end.
pub(super) fn wait_ends(what: &request::What) -> Option<Moment> {
    let wait_ms = match what {
        request::What::Acquire(acquire) => acquire.wait_ms,
        request::What::Upgrade(upgrade) => upgrade.wait_ms,
        _ => None,
    };
    let wait_ms = wait_ms.filter(|ms| (1..FOREVER).contains(ms))?;
    Some(Moment::now().plus(Duration::from_millis(wait_ms)))
}

impl Asked {
    pub(super) fn tell(&mut self, answer: Result<Answer, Error>) {
        if let Some(reply) = self.reply.take() {
            // Whoever dropped the future does not want to know.
            let _ = reply.send(answer);
        }
    }

    /// The same for the last time. Whoever hears it may ask for the room at once.
    pub(super) fn settle(&mut self, answer: Result<Answer, Error>) {
        drop(self.permit.take());
        self.tell(answer);
    }

    /// Hands out what is held; gives it back if nobody wants it any more.
    pub(super) fn hand_out(&mut self, hold: Hold) -> Option<Hold> {
        let Some(reply) = self.reply.take() else { return Some(hold) };
        match reply.send(Ok(Answer::Held(hold))) {
            Err(Ok(Answer::Held(hold))) => Some(hold),
            _ => None,
        }
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.reply.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// A wait for a turn has no end but its own and its session's.
    pub(super) fn is_patient(&self) -> bool {
        let wait_ms = match &self.what {
            request::What::Acquire(acquire) => acquire.wait_ms,
            request::What::Upgrade(upgrade) => upgrade.wait_ms,
            _ => None,
        };
        wait_ms.is_some_and(|ms| ms > 0)
    }

    /// It keeps or lets go of a ticket that is there: worth sending also when nobody waits for it.
    pub(super) fn keeps_order(&self) -> bool {
        use request::What::{Cancel, Downgrade, Release, Renew};
        matches!(self.what, Release(_) | Cancel(_) | Renew(_) | Downgrade(_))
    }

    /// It undoes something that was dropped, or will.
    pub(super) fn is_unsettled(&self) -> bool {
        self.is_abandoned() && !matches!(self.what, request::What::Renew(_))
    }

    /// Whether it draws a ticket, which is of no use unless somebody waits for it.
    pub(super) fn draws_ticket(&self) -> bool {
        matches!(self.what, request::What::Acquire(_) | request::What::Upgrade(_))
    }

    /// For an acquire: whether what it gets may outlive the session.
    pub(super) fn has_own_lease(&self) -> bool {
        matches!(&self.what, request::What::Acquire(acquire) if acquire.ttl_ms.is_some())
    }

    /// The time to stand in line counts from the call; what passed before it was sent is over.
    pub(super) fn shorten_wait(&mut self, passed: Duration) {
        let wait_ms = match &mut self.what {
            request::What::Acquire(acquire) => &mut acquire.wait_ms,
            request::What::Upgrade(upgrade) => &mut upgrade.wait_ms,
            _ => return,
        };
        if let Some(ms) = wait_ms.filter(|ms| *ms != FOREVER) {
            let passed_ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
            *wait_ms = Some(ms.saturating_sub(passed_ms));
        }
    }

    /// The name that its ticket goes by.
    pub(super) fn name(&self) -> Bytes {
        let name = match &self.what {
            request::What::Acquire(acquire) => acquire.names.first(),
            request::What::Upgrade(upgrade) => upgrade.own.as_ref().map(|own| &own.name),
            _ => None,
        };
        name.cloned().unwrap_or_default()
    }

    pub(super) fn reader_gone(&self) -> bool {
        self.change.as_ref().is_some_and(|change| change.reader_gone)
    }

    /// The ticket whose holder asks.
    pub(super) fn holder(&self) -> Option<u64> {
        use request::What::{Downgrade, Note, Recovered, Upgrade};
        match &self.what {
            Note(note) => note.own.as_ref().map(|own| own.token),
            Recovered(own) | Downgrade(own) => Some(own.token),
            Upgrade(_) => self.upgrades(),
            _ => None,
        }
    }

    /// For an upgrade: the shared ticket that ends with its turn.
    pub(super) fn upgrades(&self) -> Option<u64> {
        match &self.what {
            request::What::Upgrade(upgrade) => upgrade.own.as_ref().map(|own| own.token),
            _ => None,
        }
    }
}
