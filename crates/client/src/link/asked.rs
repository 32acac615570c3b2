//! What the task is asked to do, and what it answers.

use crate::clock::Moment;
use crate::error::Error;
use crate::hold::Hold;
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, request, to_client};
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
    /// Somebody does not wait for its answer any more.
    Abandoned,
    Close(oneshot::Sender<()>),
}

/// A request, and where its answer goes.
pub(crate) struct Ask {
    pub(crate) what: request::What,
    pub(crate) reply: oneshot::Sender<Result<Answer, Error>>,
    pub(crate) permit: Permit,
}

/// What came of it.
pub(crate) enum Answer {
    Told(to_client::What),
    /// For an acquire or upgrade: its turn has come.
    Held(Hold),
}

/// A request until it is settled.
pub(super) struct Asked {
    pub(super) what: request::What,
    /// None if nobody wants to know.
    pub(super) reply: Option<oneshot::Sender<Result<Answer, Error>>>,
    /// None for what keeps an older ticket alive or ends it: that one has room already.
    pub(super) permit: Option<Permit>,
    pub(super) first_sent: Moment,
    pub(super) give_up: Moment,
    /// What it is about may outlive the session.
    pub(super) outlives: bool,
}

impl Asked {
    pub(super) fn tell(&mut self, answer: Result<Answer, Error>) {
        if let Some(reply) = self.reply.take() {
            // Whoever dropped the future does not want to know.
            let _ = reply.send(answer);
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
        use request::What::{Cancel, Release, Renew};
        matches!(self.what, Release(_) | Cancel(_) | Renew(_))
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

    /// For an upgrade: the shared ticket that ends with its turn.
    pub(super) fn upgrades(&self) -> Option<u64> {
        match &self.what {
            request::What::Upgrade(upgrade) => upgrade.own.as_ref().map(|own| own.token),
            _ => None,
        }
    }
}
