//! Why something did not work, each with what it means for the caller.

use holdfast_proto::v1 as proto;
use std::fmt;

/// How a ticket ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The holder finished.
    Released,
    /// Its deadline passed or its session fell silent.
    Expired,
    /// Its session was closed.
    Closed,
    /// Somebody broke it.
    Forced,
    /// A waiter gave up.
    Cancelled,
    /// A waiter's time was over.
    TimedOut,
    /// The cluster was restored from a backup.
    Restored,
    /// A later version of the server has a word that this client does not know.
    Unknown,
}

impl How {
    pub(crate) fn of(how: i32) -> Self {
        match proto::How::try_from(how) {
            Ok(proto::How::Released) => Self::Released,
            Ok(proto::How::Expired) => Self::Expired,
            Ok(proto::How::Closed) => Self::Closed,
            Ok(proto::How::Forced) => Self::Forced,
            Ok(proto::How::Cancelled) => Self::Cancelled,
            Ok(proto::How::TimedOut) => Self::TimedOut,
            Ok(proto::How::Restored) => Self::Restored,
            Ok(proto::How::Unknown) | Err(_) => Self::Unknown,
        }
    }
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A try found somebody in line, or a wait ended without being served.
    NotAcquired(String),
    /// The server says no; nothing was done.
    Refused {
        /// For programs.
        code: String,
        /// For people.
        message: String,
        /// What to do.
        hint: String,
        /// For code `fenced`: the highest token that was seen.
        highest: u64,
    },
    /// The session was lost before the answer came: whatever lived by it is over.
    SessionLost,
    /// The ticket is over, and how.
    Over(How),
    /// No server could be reached in time.
    Unreachable(String),
    /// An address is none.
    BadAddress(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAcquired(why) => write!(f, "not acquired: {why}"),
            Self::Refused { message, hint, .. } => write!(f, "refused: {message} ({hint})"),
            Self::SessionLost => f.write_str("the session was lost: what lived by it is over"),
            Self::Over(how) => write!(f, "the ticket is over: {how:?}"),
            Self::Unreachable(why) => write!(f, "no server could be reached: {why}"),
            Self::BadAddress(why) => write!(f, "not an address of a server: {why}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<proto::Refused> for Error {
    fn from(refused: proto::Refused) -> Self {
        let proto::Refused { code, message, hint, highest } = refused;
        match code.as_str() {
            "not_acquired" => Self::NotAcquired(message),
            "session_ended" => Self::SessionLost,
            _ => Self::Refused { code, message, hint, highest },
        }
    }
}
