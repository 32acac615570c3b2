//! What can go wrong, in two kinds: a [`Fault`] ends the use of this folder, a [`WriteError`] may
//! also be a disk that is full for a while.

use std::fmt;
use std::io;

/// Why this node must not go on with this folder. None of these is ever an answer to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Something that was durable is not what it was: what this node acknowledged or voted for
    /// can't be trusted any more.
    Damaged {
        /// What is wrong with it.
        what: String,
        /// Which file.
        file: String,
        /// From which byte on; none if it is the file as a whole.
        offset: Option<u64>,
    },
    /// The disk did not confirm a write. What is on it now, nobody knows until it is read anew.
    SyncFailed {
        /// Which file, or `.` for the names.
        file: String,
        /// What the system said.
        cause: Cause,
    },
    /// The system refused something else.
    Failed {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        file: String,
        /// What the system said.
        cause: Cause,
    },
    /// A later program wrote the file.
    LaterVersion {
        /// Which file.
        file: String,
        /// The version that it has.
        found: u32,
        /// The latest one that this program reads.
        known: u32,
    },
    /// Another process works in the folder.
    InUse(Cause),
}

impl Fault {
    /// Whether durable content is lost or wrong, so that this node is not safe under its old id.
    /// After any other fault the same folder may be opened again, which verifies all of it.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }

    pub(crate) fn damaged(file: &str, offset: u64, what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into(), file: file.to_owned(), offset: Some(offset) }
    }

    pub(crate) fn damaged_file(file: &str, what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into(), file: file.to_owned(), offset: None }
    }

    /// For `map_err` around one call.
    pub(crate) fn failed(doing: &'static str, file: &str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Failed { doing, file: file.to_owned(), cause: error.into() }
    }

    /// For `map_err` around a sync of a file.
    pub(crate) fn sync_failed(file: &str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::SyncFailed { file: file.to_owned(), cause: error.into() }
    }

    /// For `map_err` around a read: a file that opens and can't be read has lost content.
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
                write!(f, "could not {doing} {file}: {cause}; mend that, then start again")
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

/// Two halves of a file mended by hand may both look right.
const KEEP_AS_IS: &str = "nothing was changed, and nothing should be mended by hand";

impl std::error::Error for Fault {}

/// Why something was not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteError {
    /// The disk is full. Nothing of this call counts; the same call works when there is room.
    Full {
        /// Which file needed room.
        file: String,
        /// What the system said.
        cause: Cause,
    },
    /// The caller asked for what can't be, such as an entry after a gap. Nothing was written.
    Misuse(String),
    /// This is the end.
    Fault(Fault),
}

impl WriteError {
    /// For `map_err` around a write: a full disk is not the end, anything else is.
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

/// What the operating system said, in a form that can be kept and compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The kind of error.
    pub kind: io::ErrorKind,
    /// Its words.
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
