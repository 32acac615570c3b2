//! The clock for leases: it also runs while the machine sleeps.

use crate::session::Moment;
use rustix::time::{ClockId, clock_gettime};

/// The current moment, counted from the machine's boot.
pub(crate) fn now() -> Moment {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    Moment::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}
