//! Errors, and what each means for the caller.

use crate::code::ErrorCode;
use crate::token::Token;
use holdfast_proto::v1 as proto;
use std::fmt;

/// How a ticket ended.
///
/// ```
/// use holdfast_client::EndReason;
///
/// assert!(EndReason::Expired.died());
/// assert!(!EndReason::Released.died());
/// assert_eq!(EndReason::TimedOut.to_string(), "timed out");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndReason {
    /// The holder finished.
    Released,
    /// Its deadline passed or its session fell silent.
    Expired,
    /// Its session was closed.
    Closed,
    /// An operator broke the lock.
    Forced,
    /// A waiter gave up.
    Cancelled,
    /// A waiter timed out.
    TimedOut,
    /// The cluster was restored from a backup.
    Restored,
    /// The ticket is over, but it is not known how it ended.
    Unknown,
}

impl EndReason {
    pub(crate) fn of(how: i32) -> Self {
        match proto::EndReason::try_from(how) {
            Ok(proto::EndReason::Released) => Self::Released,
            Ok(proto::EndReason::Expired) => Self::Expired,
            Ok(proto::EndReason::Closed) => Self::Closed,
            Ok(proto::EndReason::Forced) => Self::Forced,
            Ok(proto::EndReason::Cancelled) => Self::Cancelled,
            Ok(proto::EndReason::TimedOut) => Self::TimedOut,
            Ok(proto::EndReason::Restored) => Self::Restored,
            Ok(proto::EndReason::Unknown) | Err(_) => Self::Unknown,
        }
    }

    /// Whether a holder that ended this way may have left work half done.
    pub fn died(self) -> bool {
        matches!(self, Self::Expired | Self::Closed | Self::Forced | Self::Restored)
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Closed => "closed",
            Self::Forced => "forced",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed out",
            Self::Restored => "restored",
            Self::Unknown => "nobody knows how",
        })
    }
}

/// Why a call failed.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// # let client = Client::connect(&servers).await?;
/// # let _held = client.lock("seat-12A").acquire().await?;
/// use holdfast_client::Error;
///
/// match client.lock("seat-12A").wait(Duration::from_millis(10)).acquire().await {
///     Err(Error::NotAcquired(why)) => println!("its turn did not come: {why}"),
///     Err(error) => return Err(error),
///     Ok(_) => unreachable!("it is held"),
/// }
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The lock was busy and the call does not wait, or the wait ended without being served.
    NotAcquired(String),
    /// The server refused the request; nothing was done.
    Refused {
        /// The reason, for programs.
        code: ErrorCode,
        /// The reason, for people.
        message: String,
        /// What to do.
        hint: String,
        /// For [`ErrorCode::Fenced`]: the highest token that was seen.
        highest: Option<Token>,
    },
    /// The session was lost before the answer arrived. Locks that depended on it are over; a lock
    /// with a lease of its own may be held until that runs out.
    SessionLost,
    /// The ticket is over, for this reason.
    Over(EndReason),
    /// No server answered in time. The text says whether the request may still have taken effect.
    Unreachable(String),
    /// A server address is invalid.
    BadAddress(String),
    /// The client has reached its limit of locks, waits or requests. Nothing was done.
    TooMany(String),
    /// The client was closed.
    Closed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAcquired(why) => write!(f, "not acquired: {why}"),
            Self::Refused { message, hint, .. } if hint.is_empty() => {
                write!(f, "refused: {message}")
            }
            Self::Refused { message, hint, .. } => write!(f, "refused: {message} ({hint})"),
            Self::SessionLost => {
                f.write_str("the session was lost, and with it the locks that depended on it")
            }
            Self::Over(how) => write!(f, "the ticket is over: {how}"),
            Self::Unreachable(why) => write!(f, "no server answered in time: {why}"),
            Self::BadAddress(why) => write!(f, "invalid server address: {why}"),
            Self::TooMany(what) => {
                write!(f, "too many {what} at once: wait for some to end, or use another client")
            }
            Self::Closed => f.write_str("the client was closed: connect again"),
        }
    }
}

impl std::error::Error for Error {}

impl From<proto::Refused> for Error {
    fn from(refused: proto::Refused) -> Self {
        let proto::Refused { code, message, hint, highest, how } = refused;
        match code.as_str() {
            "not_acquired" => Self::NotAcquired(message),
            "session_ended" => Self::SessionLost,
            "not_held" if how != 0 => Self::Over(EndReason::of(how)),
            _ => Self::Refused {
                code: code.as_str().into(),
                message,
                hint,
                highest: Some(highest).filter(|highest| *highest > 0).map(Token::new),
            },
        }
    }
}

impl Error {
    /// For requests that only a holder can make: a ticket that is not found is over.
    pub(crate) fn of_holder(self) -> Self {
        match self {
            Self::Refused { code: ErrorCode::NotHeld, .. } => Self::Over(EndReason::Unknown),
            other => other,
        }
    }

    /// The code of a refusal; `None` for other errors.
    pub fn code(&self) -> Option<&ErrorCode> {
        match self {
            Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// For a request that was sent and not answered.
    pub(crate) fn unanswered(why: &str) -> Self {
        Self::Unreachable(format!("{why} (it may or may not have been done)"))
    }

    pub(crate) fn local(code: ErrorCode, message: &str, hint: &str) -> Self {
        let [message, hint] = [message, hint].map(str::to_owned);
        Self::Refused { code, message, hint, highest: None }
    }
}

/// The longest message that a server accepts, minus the overhead around a request.
const MESSAGE_BYTES_MAX: usize = (512 << 10) - 64;

/// Refuses a request that no server would accept: if it were sent, it would end the stream every
/// time.
pub(crate) fn check_size(bytes: usize) -> Result<(), Error> {
    if bytes <= MESSAGE_BYTES_MAX {
        return Ok(());
    }
    let message = format!("the request has {bytes} bytes, and a server takes {MESSAGE_BYTES_MAX}");
    Err(Error::local(ErrorCode::TooLarge, &message, "use shorter names, labels, notes and values"))
}
