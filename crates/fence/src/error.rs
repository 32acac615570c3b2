//! What went wrong, and whether the call may still have taken effect.

use crate::highest::Highest;
use crate::token::{InvalidToken, Mode, Token};
use std::fmt;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// A later holder has shown its token. Names both tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The resource that was to be written or raised.
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

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, shown, highest } = self;
        let later = self.later();
        write!(
            f,
            "token {shown} is refused for {resource:?}: a later holder has shown token {later}"
        )?;
        if shown.mode() == Mode::Exclusive && highest.any > highest.exclusive {
            f.write_str(";shared")?;
        }
        f.write_str(". Stop, and acquire the lock again")
    }
}

/// What went wrong at a fence.
///
/// Only after [`Error::Unknown`] may the call have taken effect.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A later holder has shown its token: the caller no longer holds the lock.
    Refused(Refused),
    /// There is no token to compare.
    InvalidToken(InvalidToken),
    /// The fence can't store a resource of this name.
    InvalidResource {
        /// Its name.
        resource: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The store is down, denies access, or rejects the write. Nothing was done.
    Unavailable {
        /// Which store.
        store: String,
        /// What it said.
        source: Source,
    },
    /// The store has no room left. Nothing was done.
    Full {
        /// Which store.
        store: String,
        /// What it said.
        source: Source,
    },
    /// Too many concurrent writers on this resource. Nothing was done.
    Busy {
        /// Which resource.
        resource: String,
    },
    /// The reply was lost: the call may or may not have taken effect. Retrying is safe.
    Unknown {
        /// Which store.
        store: String,
        /// What happened.
        source: Source,
    },
    /// The store can't compare and write atomically, so it can't be a fence. Nothing was done.
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
    /// The refusal, if it is one.
    pub fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Refused(refused) => Some(refused),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::InvalidToken(invalid) => invalid.fmt(f),
            Self::InvalidResource { resource, reason } => {
                write!(f, "{resource:?} can't be the name of a resource: {reason}")
            }
            Self::Unavailable { store, source } => {
                write!(f, "{store} is unavailable, nothing was written: {source}")
            }
            Self::Full { store, source } => {
                write!(f, "{store} is full, nothing was written: {source}")
            }
            Self::Busy { resource } => {
                write!(
                    f,
                    "too many concurrent writers on {resource:?}, nothing was written: try again"
                )
            }
            Self::Unknown { store, source } => write!(
                f,
                "the reply of {store} was lost, it may or may not have written: {source}. \
                 Retry with the same token"
            ),
            Self::Unsupported { store, reason } => {
                write!(f, "{store} can't be a fence, nothing was written: {reason}")
            }
            Self::Damaged { resource, reason } => write!(
                f,
                "what is stored as {resource:?} was not written by a fence and was not changed: \
                 {reason}"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::InvalidToken(invalid) => Some(invalid),
            Self::Unavailable { source, .. }
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
