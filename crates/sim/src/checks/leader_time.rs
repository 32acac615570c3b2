//! Time stands still while nobody leads: the entries of a term tell no more time than has passed
//! since its leader was elected. So leases stretch by an outage and never shrink.

use super::{Applied, Violation};

/// The fastest clock of a node, in parts of a thousand.
const RATE_MAX: u64 = 1_006;
/// What rounding to milliseconds may add.
const ROUNDING_MS: u64 = 2;

#[derive(Debug, Default)]
pub(crate) struct LeaderTime {
    /// Logical time as of the last entry.
    now_ms: u64,
    term: u64,
    /// How much of it the entries of this term told.
    logged_ms: u64,
}

impl LeaderTime {
    /// An entry was applied, of a term whose leader leads since then.
    pub(crate) fn applied(
        &mut self,
        applied: &Applied<'_>,
        since_us: Option<u64>,
    ) -> Result<(), Violation> {
        let Applied { state, at, now_us, .. } = applied;
        if self.term != at.term {
            (self.term, self.logged_ms) = (at.term, 0);
        }
        self.logged_ms += state.now_ms().saturating_sub(self.now_ms);
        self.now_ms = state.now_ms().max(self.now_ms);
        let Some(since_us) = since_us else { return Ok(()) };
        let passed_ms = (now_us - since_us) * RATE_MAX / 1_000_000 + ROUNDING_MS;
        if self.logged_ms > passed_ms {
            return Err(format!(
                "leader time: the leader of term {} logged {} ms, but has led for {passed_ms} ms",
                at.term, self.logged_ms
            ));
        }
        Ok(())
    }
}
