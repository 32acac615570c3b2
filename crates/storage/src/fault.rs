//! Errors, of two kinds: a [`Fault`] ends the use of this folder, while a [`WriteError`] may also
//! mean that the disk is full for a while.

use std::fmt;
use std::io;

/// Why this node must stop using this folder. A fault is never sent to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Durable data has changed: what this node acknowledged or voted for can no longer be trusted.
    Damaged {
        /// What is wrong.
        what: String,
        /// The file.
        file: String,
        /// Where the damage starts, in bytes; `None` if it concerns the file as a whole.
        offset: Option<u64>,
    },
    /// The disk did not confirm a write. What is on it is unknown until it is read again.
    SyncFailed {
        /// The file, or `.` for the file names.
        file: String,
        /// The operating system's error.
        cause: Cause,
    },
    /// Another operation failed.
    Failed {
        /// The operation.
        doing: &'static str,
        /// The file.
        file: String,
        /// The operating system's error.
        cause: Cause,
    },
    /// A newer version of the program wrote the file.
    LaterVersion {
        /// The file.
        file: String,
        /// Its format version.
        found: u32,
        /// The latest version that this program can read.
        known: u32,
    },
    /// Another process is using the folder.
    InUse(Cause),
}

impl Fault {
    /// Whether durable data is lost or wrong, so that this node is not safe under its old id. After
    /// any other fault the same folder may be opened again, which verifies everything.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }

    pub(crate) fn damaged(file: &str, offset: u64, what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into(), file: file.to_owned(), offset: Some(offset) }
    }

    pub(crate) fn damaged_file(file: &str, what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into(), file: file.to_owned(), offset: None }
    }

    /// For `map_err` after an operation.
    pub(crate) fn failed(doing: &'static str, file: &str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Failed { doing, file: file.to_owned(), cause: error.into() }
    }

    /// For `map_err` after a sync.
    pub(crate) fn sync_failed(file: &str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::SyncFailed { file: file.to_owned(), cause: error.into() }
    }

    /// For `map_err` after a read: a file that can be opened but not read has lost content.
    pub(crate) fn unreadable(file: &str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::damaged_file(file, format!("it can't be read: {error}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { what, file, offset: Some(offset) } => {
                write!(f, "{file} is damaged at byte {offset}: {what}; {KEEP_AS_IS}")
            }
            Self::Damaged { what, file, offset: None } => {
                write!(f, "{file} is damaged: {what}; {KEEP_AS_IS}")
            }
            Self::SyncFailed { file, cause } => write!(
                f,
                "the disk did not confirm what was written to {file}: {cause}; stop, look at the \
                 disk, then start again: everything is verified at the start"
            ),
            Self::Failed { doing, file, cause } => {
                write!(f, "could not {doing} {file}: {cause}; fix that, then start again")
            }
            Self::LaterVersion { file, found, known } => write!(
                f,
                "{file} has format version {found}, and this program reads up to {known}: start \
                 the later program that wrote it"
            ),
            Self::InUse(cause) => {
                write!(f, "{cause}: stop that process first, or use another folder")
            }
        }
    }
}

/// A file repaired by hand may look right and still be wrong.
const KEEP_AS_IS: &str = "nothing was changed, and nothing should be repaired by hand";

impl std::error::Error for Fault {}

/// Why a write failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteError {
    /// The disk is full. None of this call took effect; the same call works once there is room.
    Full {
        /// The file that needed room.
        file: String,
        /// The operating system's error.
        cause: Cause,
    },
    /// The caller asked for something impossible, such as an entry after a gap. Nothing was
    /// written.
    Misuse(String),
    /// The folder can no longer be used.
    Fault(Fault),
}

impl WriteError {
    /// For `map_err` after a write: a full disk is an error that may pass, anything else is a
    /// fault.
    pub(crate) fn of(doing: &'static str, file: &str) -> impl FnOnce(io::Error) -> Self {
        move |error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full { file: file.to_owned(), cause: error.into() }
            }
            _ => Self::Fault(Fault::failed(doing, file)(error)),
        }
    }
}

impl From<Fault> for WriteError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { file, cause } => write!(f, "no room for {file}: {cause}; free some space"),
            Self::Misuse(what) => f.write_str(what),
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for WriteError {}

/// An operating system error in a form that can be cloned and compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The kind of error.
    pub kind: io::ErrorKind,
    /// Its message.
    pub text: String,
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        Self { kind: error.kind(), text: error.to_string() }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
