//! A request, until it is settled.

use super::io::{Answer, CallId, ModeChange, Output, TicketRef};
use super::moment::Moment;
use super::room::Room;
use crate::error::Error;
use crate::lock::FOREVER;
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, request};
use std::sync::Arc;
use std::time::Duration;

/// How long a request is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    /// While its session lives: its subject does not outlive the session.
    InSession,
    /// Also in the next session, until its caller times out.
    ForItsCaller,
    /// Also in the next session, even without a caller: its ticket has a lease of its own, and
    /// would be held by nobody until that runs out.
    ForItsTicket,
}

impl Retry {
    /// For a request that ends or changes a ticket.
    pub(super) fn of_ticket(has_own_lease: bool) -> Self {
        if has_own_lease { Self::ForItsTicket } else { Self::InSession }
    }
}

/// A mode change of a held ticket. The guard follows the server's decision, whether or not the
/// caller still waits for the answer.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) guard: CallId,
    pub(super) names: Vec<Bytes>,
    pub(super) before: proto::Mode,
    /// `None` if the ticket depends on its session.
    pub(super) own_ttl: Option<Duration>,
    /// For an upgrade: the shared ticket is over. If the upgrade was not served in that step,
    /// nothing is held any more.
    pub(super) reader_gone: bool,
    /// The change is settled when the last copy is dropped.
    _unsettled: Arc<()>,
}

impl Change {
    pub(super) fn new(change: ModeChange, unsettled: Arc<()>) -> Self {
        let ModeChange { guard, names, before, own_ttl } = change;
        Self { guard, names, before, own_ttl, reader_gone: false, _unsettled: unsettled }
    }
}

/// A request, until it is settled.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) what: request::What,
    /// `None` if nobody waits for it.
    pub(super) call: Option<CallId>,
    /// `None` for a request that keeps or ends an existing ticket, which already has room.
    pub(super) room: Option<Room>,
    pub(super) change: Option<Change>,
    pub(super) first_sent: Moment,
    pub(super) give_up: Moment,
    /// For a wait: when it times out, by this client's clock.
    pub(super) wait_ends: Option<Moment>,
    pub(super) retry: Retry,
}

/// When a request's wait times out; `None` if it does not wait, or waits forever.
pub(super) fn wait_ends(what: &request::What, now: Moment) -> Option<Moment> {
    let wait_ms = wait_ms(what).filter(|ms| (1..FOREVER).contains(ms))?;
    Some(now.plus(Duration::from_millis(wait_ms)))
}

fn wait_ms(what: &request::What) -> Option<u64> {
    match what {
        request::What::Acquire(acquire) => acquire.wait_ms,
        request::What::Upgrade(upgrade) => upgrade.wait_ms,
        _ => None,
    }
}

impl Request {
    /// Completes its call, if its caller still waits.
    pub(super) fn complete(&mut self, outputs: &mut Vec<Output>, answer: Result<Answer, Error>) {
        if let Some(call) = self.call.take() {
            outputs.push(Output::Complete(call, answer));
        }
    }

    pub(super) fn fail(&mut self, outputs: &mut Vec<Output>, error: Error) {
        self.complete(outputs, Err(error));
    }

    /// Completes its call and frees its room first, so that the caller can use it at once.
    pub(super) fn settle(mut self, outputs: &mut Vec<Output>, answer: Result<Answer, Error>) {
        drop(self.room.take());
        self.complete(outputs, answer);
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.call.is_none()
    }

    /// Whether it waits in line: then only the wait itself or its session ends it.
    pub(super) fn waits_in_line(&self) -> bool {
        wait_ms(&self.what).is_some_and(|ms| ms > 0)
    }

    /// Whether it keeps or releases an existing ticket: worth sending even without a caller.
    pub(super) fn keeps_order(&self) -> bool {
        use request::What::{Cancel, Downgrade, Release, Renew};
        matches!(self.what, Release(_) | Cancel(_) | Renew(_) | Downgrade(_))
    }

    /// Whether it undoes something that was dropped, or will.
    pub(super) fn is_unsettled(&self) -> bool {
        self.is_abandoned() && !matches!(self.what, request::What::Renew(_))
    }

    /// Whether it draws a ticket, which is of no use without a caller.
    pub(super) fn draws_ticket(&self) -> bool {
        matches!(self.what, request::What::Acquire(_) | request::What::Upgrade(_))
    }

    /// For an acquire: whether its ticket may outlive the session.
    pub(super) fn has_own_lease(&self) -> bool {
        matches!(&self.what, request::What::Acquire(acquire) if acquire.ttl_ms.is_some())
    }

    /// A wait counts from the call, so the time before it was sent is subtracted.
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

    /// The ticket that it has drawn.
    pub(super) fn ticket(&self, token: u64, secret: Bytes) -> TicketRef {
        let name = match &self.what {
            request::What::Acquire(acquire) => acquire.names.first(),
            request::What::Upgrade(upgrade) => upgrade.own.as_ref().map(|own| &own.name),
            _ => None,
        };
        TicketRef { name: name.cloned().unwrap_or_default(), token, secret }
    }

    pub(super) fn guard(&self) -> Option<CallId> {
        self.change.as_ref().map(|change| change.guard)
    }

    pub(super) fn reader_gone(&self) -> bool {
        self.change.as_ref().is_some_and(|change| change.reader_gone)
    }

    /// The holder's ticket that it is about.
    pub(super) fn holder(&self) -> Option<u64> {
        use request::What::{Downgrade, Note, Recovered, Upgrade};
        match &self.what {
            Note(note) => note.own.as_ref().map(|own| own.token),
            Recovered(own) | Downgrade(own) => Some(own.token),
            Upgrade(_) => self.upgrades(),
            _ => None,
        }
    }

    /// For an upgrade: the shared ticket that ends when it is served.
    pub(super) fn upgrades(&self) -> Option<u64> {
        match &self.what {
            request::What::Upgrade(upgrade) => upgrade.own.as_ref().map(|own| own.token),
            _ => None,
        }
    }
}
