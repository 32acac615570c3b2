//! Whether a grant is still valid when it is delivered. This node may have learned of it late,
//! after being stopped or cut off from the leader for longer than the lease.

use holdfast_core::{Grant, Lease, State, TicketStatus, Token};
use std::time::Duration;

/// A grant that was answered within this time is as fresh as any answer over a network.
const FRESH: Duration = Duration::from_millis(100);

/// A grant may also be ended by somebody else, so it is checked again after this long in any case.
const LOOK_AFTER: Duration = Duration::from_secs(5);

/// How many times a grant is checked before the answer is "unknown". Each check is confirmed by a
/// majority, so this happens only if the node stalls again and again.
const LOOKS_MAX: usize = 5;

/// A point in time after which the grant was made, and the least time that it lasts from then on.
/// If it may be over by now, the current state decides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Freshness {
    since: Duration,
    lasts: Duration,
    looks_left: usize,
}

/// What to do with a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FreshnessCheck {
    /// Deliver it.
    Yes,
    /// Read the current state, see [`lasts_of`], and pass it to `looked`.
    Look,
    /// Answer "unknown".
    Unknown,
}

impl Freshness {
    /// For a grant that was requested at `since`, on a clock that also runs while the machine
    /// sleeps.
    pub(crate) fn of(grant: &Grant, since: Duration) -> Self {
        let lasts = match grant.lease {
            Lease::Deadline { ttl_ms } | Lease::Unconfirmed { ttl_ms } => {
                Duration::from_millis(ttl_ms)
            }
            // How long its session may be silent is not known here.
            Lease::Session => Duration::ZERO,
            Lease::Permanent => Duration::MAX,
        };
        Self::lasting(since, lasts)
    }

    /// For a grant that lasts at least this long from `since` on.
    pub(crate) fn lasting(since: Duration, lasts: Duration) -> Self {
        Self { since, lasts, looks_left: LOOKS_MAX }
    }

    /// Whether it is valid now.
    pub(crate) fn check(&mut self, now: Duration) -> FreshnessCheck {
        let Some(left) = self.looks_left.checked_sub(1) else { return FreshnessCheck::Unknown };
        self.looks_left = left;
        // A lease never ends early, but the clocks of two machines differ slightly.
        let certain = (self.lasts - self.lasts / 10).min(LOOK_AFTER).max(FRESH);
        if now.saturating_sub(self.since) < certain {
            FreshnessCheck::Yes
        } else {
            FreshnessCheck::Look
        }
    }

    /// The ticket was held in a state read after `since`, and will be for at least this long.
    pub(crate) fn looked(&mut self, since: Duration, lasts: Duration) {
        (self.since, self.lasts) = (since, lasts);
    }
}

/// The status of a ticket and, if it is held, for how long it will be at least.
pub fn lasts_of(state: &State, token: Token) -> (TicketStatus, Duration) {
    let due_ms = state.ticket_view(token).map(|ticket| ticket.due_ms);
    let lasts = match due_ms {
        Some(Some(due_ms)) => Duration::from_millis(due_ms.saturating_sub(state.now_ms())),
        // It was held when this was read, and has no deadline.
        Some(None) => LOOK_AFTER,
        None => Duration::ZERO,
    };
    (state.ticket_status(token), lasts)
}
