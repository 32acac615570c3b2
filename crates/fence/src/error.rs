//! Errors, and whether the call may have taken effect nevertheless.

use crate::highest::Highest;
use crate::token::{InvalidToken, Mode, Token};
use std::fmt;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// A refusal: a later holder has shown its token. The text names both tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The resource of the call.
    pub resource: String,
    /// The token that was shown.
    pub shown: Token,
    /// The highest tokens that the fence has seen.
    pub highest: Highest,
}

impl Refused {
    /// The later holder's number.
    pub fn later(&self) -> u64 {
        self.highest.lowest_passing(self.shown.mode())
    }
}

impl Refused {
    const HINT: &str = "stop, and acquire the lock again";

    fn message(&self) -> String {
        let Self { resource, shown, highest } = self;
        let shared = shown.mode() == Mode::Exclusive && highest.any > highest.exclusive;
        format!(
            "token {shown} is refused for {resource:?}: a later holder has shown token {}{}",
            self.later(),
            if shared { ";shared" } else { "" }
        )
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_hint(f, &self.message(), Self::HINT)
    }
}

impl std::error::Error for Refused {}

/// Why a call to a fence failed.
///
/// Its text says what is wrong and what to do. The call may have taken effect only after
/// [`Error::Unknown`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A later holder has shown its token: the caller no longer holds the lock. Nothing was done.
    Refused(Refused),
    /// There is no token to compare. Nothing was done.
    InvalidToken(InvalidToken),
    /// The fence can't store a resource with this name. Nothing was done.
    InvalidResource {
        /// Its name.
        resource: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The value is larger than the store accepts. Nothing was done.
    TooLarge {
        /// Which store.
        store: String,
        /// The store's error.
        source: Source,
    },
    /// The store is down, denies access, or rejects the call. Nothing was done.
    Unavailable {
        /// Which store.
        store: String,
        /// The store's error.
        source: Source,
    },
    /// The store has no room left. Nothing was done.
    Full {
        /// Which store.
        store: String,
        /// The store's error.
        source: Source,
    },
    /// Other writers kept the resource busy for too long. Nothing was done.
    Busy {
        /// Which resource.
        resource: String,
        /// What the call was waiting for.
        reason: String,
    },
    /// The store did not confirm the call: it may have taken effect, may still do so, or may never
    /// do so. Retrying with the same token is safe.
    Unknown {
        /// Which store.
        store: String,
        /// What happened.
        source: Source,
    },
    /// The store can't be used as a fence, because it can't compare and write atomically, or can
    /// lose what it has acknowledged. Nothing was done.
    Unsupported {
        /// Which store.
        store: String,
        /// What it lacks.
        reason: String,
    },
    /// What is stored under this name was not written by a fence. Nothing was changed.
    Damaged {
        /// Which resource.
        resource: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    /// The refusal, if this is one.
    pub fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Refused(refused) => Some(refused),
            _ => None,
        }
    }

    /// What is wrong.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Refused(refused) => refused.message(),
            Self::InvalidToken(invalid) => invalid.message(),
            Self::InvalidResource { resource, reason } => {
                format!("invalid resource name {resource:?}: {reason}")
            }
            Self::TooLarge { store, source } => {
                format!("the value is too large for {store}, nothing was written: {source}")
            }
            Self::Unavailable { store, source } => {
                format!("{store} is unavailable, nothing was written: {source}")
            }
            Self::Full { store, source } => {
                format!("{store} is full, nothing was written: {source}")
            }
            Self::Busy { resource, reason } => {
                format!("{resource:?} is busy, nothing was written: {reason}")
            }
            Self::Unknown { store, source } => {
                format!("{store} did not confirm the call, which may have taken effect: {source}")
            }
            Self::Unsupported { store, reason } => {
                format!("{store} can't be a fence, nothing was written: {reason}")
            }
            Self::Damaged { resource, reason } => format!(
                "{resource:?} exists, but was not written by a fence and was left as it is: {reason}"
            ),
        }
    }

    /// What to do; empty if the message already says so.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Refused(_) => Refused::HINT,
            Self::InvalidToken(invalid) => invalid.hint(),
            Self::Busy { .. } => "try again",
            Self::Unknown { .. } => "retry with the same token",
            Self::Damaged { .. } => "repair it, or use another name",
            Self::InvalidResource { .. }
            | Self::TooLarge { .. }
            | Self::Unavailable { .. }
            | Self::Full { .. }
            | Self::Unsupported { .. } => "",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_hint(f, &self.message(), self.hint())
    }
}

pub(crate) fn with_hint(
    f: &mut fmt::Formatter<'_>,
    message: &str,
    hint: &'static str,
) -> fmt::Result {
    f.write_str(message)?;
    let mut hint = hint.chars();
    match hint.next() {
        Some(first) => write!(f, ". {}{}", first.to_ascii_uppercase(), hint.as_str()),
        None => Ok(()),
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::TooLarge { source, .. }
            | Self::Unavailable { source, .. }
            | Self::Full { source, .. }
            | Self::Unknown { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

impl From<InvalidToken> for Error {
    fn from(invalid: InvalidToken) -> Self {
        Self::InvalidToken(invalid)
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}
