//! Whether a grant is still good when its caller is told: this node may have learned of it late. It
//! was stopped, or cut off from the leader, for longer than the lease lasts.

use holdfast_core::{Grant, Lease, State, TicketStatus, Token};
use std::time::Duration;

/// A grant whose answer took no longer than this is as good as any answer over a network.
const FRESH: Duration = Duration::from_millis(100);

/// A grant may also be ended by somebody else: after so long it is looked at again in any case.
const LOOK_AFTER: Duration = Duration::from_secs(5);

/// How often a grant is looked at before the answer is "unknown". Each look is confirmed by a
/// majority: it fails only if this node stands still again and again.
const LOOKS_MAX: usize = 5;

/// A grant was certainly made after a point in time, and lasted for some time from then on at least.
/// If that may be over by now, the current state decides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Freshness {
    since: Duration,
    lasts: Duration,
    looks_left: usize,
}

/// What is to be done with a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FreshnessCheck {
    /// It is good.
    Yes,
    /// Read the current state, see [`lasts_of`], and tell `looked`.
    Look,
    /// Nobody can tell.
    Unknown,
}

impl Freshness {
    /// Of a grant that was asked for at that time, on a clock that also runs while the machine sleeps.
    pub(crate) fn of(grant: &Grant, since: Duration) -> Self {
        let lasts = match grant.lease {
            Lease::Deadline { ttl_ms } | Lease::Unconfirmed { ttl_ms } => {
                Duration::from_millis(ttl_ms)
            }
            // Nobody here knows how long its session may be silent.
            Lease::Session => Duration::ZERO,
            Lease::Permanent => Duration::MAX,
        };
        Self::lasting(since, lasts)
    }

    /// Of a grant that will last so long from that time on.
    pub(crate) fn lasting(since: Duration, lasts: Duration) -> Self {
        Self { since, lasts, looks_left: LOOKS_MAX }
    }

    /// Whether it is good now.
    pub(crate) fn check(&mut self, now: Duration) -> FreshnessCheck {
        let Some(left) = self.looks_left.checked_sub(1) else { return FreshnessCheck::Unknown };
        self.looks_left = left;
        // A lease never ends early, but the clocks of two machines differ by a little.
        let certain = (self.lasts - self.lasts / 10).min(LOOK_AFTER).max(FRESH);
        if now.saturating_sub(self.since) < certain {
            FreshnessCheck::Yes
        } else {
            FreshnessCheck::Look
        }
    }

    /// It was held in the state that was read after that time, and will be for so long.
    pub(crate) fn looked(&mut self, since: Duration, lasts: Duration) {
        (self.since, self.lasts) = (since, lasts);
    }
}

/// How a ticket stands, and for how long it will be held at least if it is.
pub fn lasts_of(state: &State, token: Token) -> (TicketStatus, Duration) {
    let due_ms = state.ticket_view(token).map(|ticket| ticket.due_ms);
    let lasts = match due_ms {
        Some(Some(due_ms)) => Duration::from_millis(due_ms.saturating_sub(state.now_ms())),
        // It was held when this was asked, and what ends it is no deadline.
        Some(None) => LOOK_AFTER,
        None => Duration::ZERO,
    };
    (state.ticket_status(token), lasts)
}
