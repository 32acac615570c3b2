//! Errors, distinguished by what they mean for the caller.

use std::fmt;
use std::time::SystemTime;

/// Why an operation did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The URL can't be used. Says what is wrong with it, and what to write instead.
    BadUrl(String),
    /// The engine does not accept this name or option, or this recipe does not support the call.
    Unsupported(String),
    /// The engine refused: wrong password, missing table, no permission.
    Refused(String),
    /// The engine did not answer, or answered in another protocol. Nothing is held.
    Unreachable(String),
    /// The wait ended before the lock was free. Nothing is held.
    TimedOut {
        /// The holder's label, if the engine knows it.
        holder: Option<String>,
    },
    /// The lease is over: it expired, or someone took the lock away.
    NotHeld(String),
    /// The engine did not answer, so it is not known whether a lock was taken or released. If the
    /// lock is held, its lease is certainly over at `until`; until then the library keeps trying to
    /// release it in the background.
    Unsure {
        /// When the lease is over in any case, by this machine's clock. An engine that restarts in
        /// between and then starts its leases over (see
        /// [`Promises::clock`](crate::Promises::clock)) counts from its restart.
        until: SystemTime,
        /// Why the last attempt failed.
        cause: String,
    },
}

impl Error {
    /// Whether a retry could succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::TimedOut { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadUrl(why) => write!(f, "invalid lock URL: {why}"),
            Self::Unsupported(why) => write!(f, "not supported: {why}"),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::Unreachable(why) => write!(f, "cannot reach the lock engine: {why}"),
            Self::TimedOut { holder: Some(holder) } => {
                write!(f, "timed out waiting for the lock, held by {holder}")
            }
            Self::TimedOut { holder: None } => f.write_str("timed out waiting for the lock"),
            Self::NotHeld(why) => write!(f, "the lock is no longer held: {why}"),
            Self::Unsure { until, cause } => {
                let left = until.duration_since(SystemTime::now()).unwrap_or_default();
                let seconds = left.as_secs_f32().ceil();
                write!(
                    f,
                    "not known whether the request took effect ({cause}); if the lock is held, it is \
                     free in {seconds}s at the latest"
                )
            }
        }
    }
}

impl std::error::Error for Error {}
