//! Acquires that are answered only when the ticket is served or its wait is over.

use super::{Engine, EventSink, Undelivered};
use crate::uptime::Uptime;
use holdfast_core::{Command, RequestRef, TicketStatus};
use holdfast_gateway::{AcquireStep, ApiError, CallOutcome, PendingAcquire, lasts_of};
use std::time::Duration;

/// The outcome of an acquire. Unless it is delivered, a ticket that only the caller can know of is
/// given up.
pub(crate) struct AcquireResult {
    status: TicketStatus,
    undelivered: Option<Undelivered>,
}

impl AcquireResult {
    pub(crate) fn status(&self) -> &TicketStatus {
        &self.status
    }

    /// Call once the caller has the answer: the ticket is then the caller's.
    pub(crate) fn delivered(self) -> TicketStatus {
        if let Some(undelivered) = self.undelivered {
            undelivered.delivered();
        }
        self.status
    }
}

impl Engine {
    /// Takes a lock with a command that draws a ticket (an acquire or an upgrade). Returns when the
    /// lock is held, or when the wait or the earlier ticket of a retried request is over.
    ///
    /// If the future is dropped before it returns, a ticket that only the caller can know of is
    /// given up. `follow` is closed if the lock is later taken over in its holder's name.
    pub(crate) async fn take(
        &self,
        request: Option<RequestRef>,
        command: Command,
        follow: Option<EventSink>,
    ) -> Result<AcquireResult, ApiError> {
        let mut pending_acquire = PendingAcquire::new(now(), request.is_some());
        let (outcome, mut undelivered) = self.submit_for_turn(request, command, follow).await?;
        // Refused, or over: nothing is left to give up.
        if matches!(outcome, CallOutcome::Answer(Err(_)) | CallOutcome::Ended(_))
            && let Some(undelivered) = undelivered.take()
        {
            undelivered.delivered();
        }
        let mut step = pending_acquire.completed(outcome, now());
        loop {
            step = match step {
                AcquireStep::Peek(token) => {
                    let seen = self.peek(move |node| lasts_of(node.state(), token)).await?;
                    pending_acquire.peeked(seen, now())
                }
                AcquireStep::Read(token) => {
                    let seen = self.read(move |node| lasts_of(node.state(), token)).await;
                    pending_acquire.read(seen.ok(), now())
                }
                AcquireStep::Done(status) => {
                    return status.map(|status| AcquireResult { status, undelivered });
                }
            };
        }
    }
}

/// On a clock that also runs while the machine sleeps.
fn now() -> Duration {
    Uptime::now().since_boot()
}
