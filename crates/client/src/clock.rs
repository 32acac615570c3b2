//! Time for leases: a clock that also runs while the machine sleeps.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// A moment on the clock of this machine: nanoseconds since it booted, sleep included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Now.
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
        Self::from(Duration::new(seconds, nanos))
    }

    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(Self::from(duration).0))
    }

    /// How long until that moment; nothing if it is past.
    pub(crate) fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }

    /// As a number, to be kept where only numbers can be.
    pub(crate) fn nanos(self) -> u64 {
        self.0
    }

    pub(crate) fn of_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    #[cfg(test)]
    pub(crate) fn at_ms(ms: u64) -> Self {
        Self::from(Duration::from_millis(ms))
    }
}

impl From<Duration> for Moment {
    fn from(since_boot: Duration) -> Self {
        Self(u64::try_from(since_boot.as_nanos()).unwrap_or(u64::MAX))
    }
}
