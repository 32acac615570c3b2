//! Time for leases: a clock that also runs while the machine sleeps.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// A moment on the clock of this machine since it booted, sleep included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    /// Now.
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
        Self(Duration::new(seconds, nanos))
    }

    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// How long until that moment; nothing if it is past.
    pub(crate) fn until(self, later: Self) -> Duration {
        later.0.saturating_sub(self.0)
    }

    #[cfg(test)]
    pub(crate) fn at_ms(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }
}
