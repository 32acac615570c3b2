//! The clock for leases: it keeps running while the machine sleeps.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Clocks of two machines may run at rates that differ by 1%; a tenth of the TTL covers that and
/// the time it takes to act on a loss.
const DRIFT_MARGIN: u32 = 10;

/// A point in time on this machine's boot clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
        Self(Duration::new(seconds, nanos))
    }

    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "used by that driver"))]
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The time left until this moment; zero if it has passed.
    pub(crate) fn remaining(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }

    pub(crate) fn has_passed(self) -> bool {
        self <= Self::now()
    }

    /// This moment as wall-clock time, for display and for other processes.
    pub(crate) fn wall_clock(self) -> SystemTime {
        let (now, wall) = (Self::now(), SystemTime::now());
        if self >= now { wall + (self.0 - now.0) } else { wall - (now.0 - self.0) }
    }

    /// The moment at which the wall clock will show `unix_ms`: as accurate as the wall clock is.
    pub(crate) fn at_unix_ms(unix_ms: u64) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Self::now();
        match Duration::from_millis(unix_ms).checked_sub(wall) {
            Some(ahead) => now.plus(ahead),
            None => Self(now.0.saturating_sub(wall - Duration::from_millis(unix_ms))),
        }
    }
}

/// How much of `ttl` a holder may count on, starting before it sent the request.
pub(crate) fn safe_part(ttl: Duration) -> Duration {
    ttl - ttl / DRIFT_MARGIN
}

/// Milliseconds since the Unix epoch.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moment_survives_conversion_to_wall_clock() {
        let moment = Moment::now().plus(Duration::from_secs(60));
        let back = Moment::at_unix_ms(unix_ms(moment.wall_clock()));
        let difference = moment.0.abs_diff(back.0);
        assert!(difference < Duration::from_secs(1), "{difference:?}");
    }

    #[test]
    fn a_tenth_of_the_ttl_is_reserved() {
        assert_eq!(safe_part(Duration::from_secs(10)), Duration::from_secs(9));
    }
}
