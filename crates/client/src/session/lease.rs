//! How long a lease is certain to last, as seen from the client.
//!
//! The server counts a lease from when it applied the request; the client counts from before it
//! sent the request, and subtracts a tenth for clocks that run at different rates. So the client's
//! end comes before the server's.

use super::moment::Moment;
use crate::error::EndReason;
use crate::guard_state::Health;
use std::time::Duration;

/// The part of a TTL that is subtracted for clock drift. Rates may differ by 1%, so a tenth is
/// plenty.
pub(super) const DRIFT_PARTS: u32 = 10;

/// How much of a logical wait counts, for the same reason.
const WAIT_PERCENT: u32 = 99;

/// The health of a lease, as seen by its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseHealth {
    /// Confirmed recently.
    Good,
    /// Still good, but two confirmations are overdue.
    Jeopardy,
    /// The server may serve the next holder.
    Over,
}

/// A lease: its duration and when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    ttl: Duration,
    counts_from: Moment,
}

impl Lease {
    /// A lease confirmed by the answer to a request that was first sent at this moment.
    pub const fn confirmed(ttl: Duration, first_sent: Moment) -> Self {
        Self { ttl, counts_from: first_sent }
    }

    /// The lease of a ticket that waited: it started with the grant.
    pub fn granted(ttl: Duration, first_sent: Moment, waited: Duration) -> Self {
        Self::confirmed(ttl, first_sent.plus(waited / 100 * WAIT_PERCENT))
    }

    /// Confirms it again. A confirmation older than the last one changes nothing.
    pub fn confirm(&mut self, sent: Moment) {
        self.counts_from = self.counts_from.max(sent);
    }

    /// Just before the request was sent whose answer last confirmed it.
    pub const fn counts_from(&self) -> Moment {
        self.counts_from
    }

    /// How long it lasts without a confirmation.
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The TTL in milliseconds, as in the server's API.
    pub fn ttl_ms(&self) -> u64 {
        u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX)
    }

    /// The moment at which the holder must stop.
    pub fn ends(&self) -> Moment {
        self.counts_from.plus(self.ttl - self.ttl / DRIFT_PARTS)
    }

    /// Its health at a moment.
    pub fn health(&self, now: Moment) -> LeaseHealth {
        if now >= self.ends() {
            LeaseHealth::Over
        } else if now >= self.counts_from.plus(self.ttl / 3 * 2) {
            LeaseHealth::Jeopardy
        } else {
            LeaseHealth::Good
        }
    }

    /// When to renew it: early enough for two more attempts.
    pub fn due(&self) -> Moment {
        self.counts_from.plus(self.ttl / 4)
    }
}

/// The health of a guard at a moment, from what it was last shown, its lease, and when the lock is
/// broken regardless of its lease. Once it is lost it must be shown as lost, which is final.
pub fn guard_health(shown: Health, lease: Lease, forced_at: Moment, now: Moment) -> Health {
    match (shown, lease.health(now)) {
        (Health::Lost(_), _) => shown,
        (_, LeaseHealth::Over) => Health::Lost(EndReason::Expired),
        _ if now >= forced_at => Health::Lost(EndReason::Forced),
        (_, LeaseHealth::Jeopardy) => Health::Jeopardy,
        (_, LeaseHealth::Good) => Health::Good,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn at_ms(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn client_lease_ends_a_tenth_before_the_servers() {
        let lease = Lease::confirmed(TTL, at_ms(1_000));
        assert_eq!(lease.ends(), at_ms(10_000));
        assert_eq!(lease.health(at_ms(1_000)), LeaseHealth::Good);
        assert_eq!(lease.health(at_ms(8_000)), LeaseHealth::Jeopardy);
        assert_eq!(lease.health(at_ms(9_999)), LeaseHealth::Jeopardy);
        assert_eq!(lease.health(at_ms(10_000)), LeaseHealth::Over);
    }

    #[test]
    fn lease_of_a_waiter_counts_most_of_its_wait() {
        let lease = Lease::granted(TTL, at_ms(0), Duration::from_secs(100));
        assert_eq!(lease.ends(), at_ms(99_000 + 9_000));
    }

    #[test]
    fn late_confirmation_does_not_shorten_the_lease() {
        let mut lease = Lease::confirmed(TTL, at_ms(5_000));
        lease.confirm(at_ms(1_000));
        assert_eq!(lease.ends(), at_ms(14_000));
        lease.confirm(at_ms(6_000));
        assert_eq!(lease.ends(), at_ms(15_000));
    }
}
