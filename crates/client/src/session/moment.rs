//! Points in time.

use std::time::Duration;

/// A moment on the client's clock: nanoseconds since some beginning. The clock must also run while
/// the machine sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// The moment that many nanoseconds after the clock's beginning.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's beginning.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// So much later.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// How long until that moment; zero if it has passed.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }
}
