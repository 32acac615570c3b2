//! What an engine and a recipe guarantee, and what they don't: as data, so that docs and tests
//! can't drift from the code.

use serde::Serialize;

/// What locks on one engine with one recipe guarantee. `docs/engines.md` is generated from these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Promises {
    /// The engine, for example `etcd`.
    pub engine: &'static str,
    /// The recipe, for example `lease`.
    pub recipe: &'static str,
    /// Waiters are served in the order in which they arrived.
    pub fair: Promise,
    /// Each holder gets a fencing token, higher than that of every earlier holder.
    pub token: Promise,
    /// An acknowledged lock is not lost when a server of the engine fails.
    pub survives_failover: Promise,
    /// The next holder learns if the previous one died instead of releasing.
    pub reports_death: Promise,
    /// Another process can extend and release the lease.
    pub detachable: Promise,
    /// `lost()` fires before the engine may serve the next holder.
    pub lost_in_time: Promise,
    /// Whose clock decides when a lease is over.
    pub clock: &'static str,
    /// What a crashed holder leaves behind.
    pub after_crash: &'static str,
    /// What a dropped connection leaves behind.
    pub after_disconnect: &'static str,
    /// What a delayed request can still do that arrives after its caller has given up on it.
    pub late_request: &'static str,
}

impl Promises {
    /// The promises of every engine and recipe in this build.
    pub fn all() -> Vec<&'static Self> {
        crate::drivers::promises()
    }
}

/// Whether a promise holds, and how or why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Promise {
    /// Whether it holds.
    pub holds: bool,
    /// How it is kept, or why it can't be.
    pub because: &'static str,
}

impl Promise {
    pub(crate) const fn yes(because: &'static str) -> Self {
        Self { holds: true, because }
    }

    pub(crate) const fn no(because: &'static str) -> Self {
        Self { holds: false, because }
    }
}
