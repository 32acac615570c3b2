//! A clock for leases, which keeps running while the machine sleeps.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// A point in time on this machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Uptime(Duration);

impl Uptime {
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        Self(Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0)))
    }

    /// How long the machine had been up at that point.
    pub(crate) fn since_boot(self) -> Duration {
        self.0
    }
}
