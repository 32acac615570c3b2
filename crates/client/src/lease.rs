//! Until when a lease is surely good, seen from the client. Pure.
//!
//! The server counts a lease from when it applied the request; the client counts from before it
//! sent it, and gives away a tenth for clocks that run at different rates. So the client's end
//! comes before the server's.

use crate::clock::Moment;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What is given away for drift: clock rates may differ by 1 %, so a tenth is plenty.
pub(crate) const DRIFT_PARTS: u32 = 10;

/// A logical wait is counted only for 99 %, for the same reason.
const WAIT_PERCENT: u32 = 99;

/// How a lease is, from the holder's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Confirmed not long ago.
    Good,
    /// Not confirmed for so long that something must be wrong; still good.
    Jeopardy,
    /// The server may serve the next one: stop.
    Over,
}

/// A lease of a certain length, and when it was last confirmed. The link confirms it, guards look.
#[derive(Debug)]
pub(crate) struct Lease {
    ttl: Duration,
    /// Before the request was sent whose answer confirmed it.
    counts_from: AtomicU64,
}

impl Lease {
    /// Confirmed by the answer to something that was first sent at that moment.
    pub(crate) fn confirmed(ttl: Duration, first_sent: Moment) -> Self {
        Self { ttl, counts_from: AtomicU64::new(first_sent.nanos()) }
    }

    /// The same for a ticket that waited: its lease began with its grant.
    pub(crate) fn granted(ttl: Duration, first_sent: Moment, waited: Duration) -> Self {
        Self::confirmed(ttl, Self::granted_at(first_sent, waited))
    }

    /// The moment before which a ticket that waited so long was surely not granted.
    pub(crate) fn granted_at(first_sent: Moment, waited: Duration) -> Moment {
        first_sent.plus(waited / 100 * WAIT_PERCENT)
    }

    /// Another confirmation; an older one than the last changes nothing.
    pub(crate) fn confirm(&self, sent: Moment) {
        self.counts_from.fetch_max(sent.nanos(), Ordering::AcqRel);
    }

    fn counts_from(&self) -> Moment {
        Moment::of_nanos(self.counts_from.load(Ordering::Acquire))
    }

    /// How long it lasts when nobody confirms it.
    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// From then on the holder must stop.
    pub(crate) fn ends(&self) -> Moment {
        self.counts_from().plus(self.ttl - self.ttl / DRIFT_PARTS)
    }

    /// From then on something is wrong: two confirmations are missing.
    fn in_jeopardy(&self) -> Moment {
        self.counts_from().plus(self.ttl / 3 * 2)
    }

    pub(crate) fn standing(&self, now: Moment) -> Standing {
        if now >= self.ends() {
            Standing::Over
        } else if now >= self.in_jeopardy() {
            Standing::Jeopardy
        } else {
            Standing::Good
        }
    }

    /// When it is to be confirmed again: so early that a second and a third try are in time too.
    pub(crate) fn due(&self) -> Moment {
        self.counts_from().plus(self.ttl / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    #[test]
    fn a_lease_ends_a_tenth_before_the_servers() {
        let lease = Lease::confirmed(TTL, Moment::at_ms(1_000));
        assert_eq!(lease.ends(), Moment::at_ms(10_000));
        assert_eq!(lease.standing(Moment::at_ms(1_000)), Standing::Good);
        assert_eq!(lease.standing(Moment::at_ms(8_000)), Standing::Jeopardy);
        assert_eq!(lease.standing(Moment::at_ms(9_999)), Standing::Jeopardy);
        assert_eq!(lease.standing(Moment::at_ms(10_000)), Standing::Over);
    }

    #[test]
    fn a_ticket_that_waited_counts_nearly_all_of_its_wait() {
        let lease = Lease::granted(TTL, Moment::at_ms(0), Duration::from_secs(100));
        assert_eq!(lease.ends(), Moment::at_ms(99_000 + 9_000));
    }

    #[test]
    fn a_late_confirmation_of_an_early_beat_does_not_shorten_it() {
        let lease = Lease::confirmed(TTL, Moment::at_ms(5_000));
        lease.confirm(Moment::at_ms(1_000));
        assert_eq!(lease.ends(), Moment::at_ms(14_000));
        lease.confirm(Moment::at_ms(6_000));
        assert_eq!(lease.ends(), Moment::at_ms(15_000));
    }
}
