//! Exit codes and errors, the same for all client commands.

use std::fmt;
use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    /// Anything else went wrong.
    Failure,
    /// The command line is invalid.
    Usage,
    /// No server could be reached.
    NoServer,
    /// Not acquired, or refused.
    NotAcquired,
    /// The lock was lost while the command ran.
    Lost,
    /// The exit code of the command that ran under the lock.
    Child(u8),
}

impl Exit {
    /// As in `sysexits.h` where it has a fitting code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Usage => 64,
            Self::NoServer => 69,
            Self::NotAcquired => 75,
            Self::Lost => 76,
            Self::Child(code) => code,
        }
    }

    /// 128 plus the signal's number, as shells report a process killed by a signal.
    pub(crate) fn of_signal(signal: i32) -> Self {
        Self::Child(u8::try_from(128 + signal).unwrap_or(u8::MAX))
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// Why a command failed, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Problem {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        let hint = Some(hint.into()).filter(|hint| !hint.is_empty());
        Self { hint, ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  {hint}"),
            None => Ok(()),
        }
    }
}

impl From<String> for Problem {
    fn from(message: String) -> Self {
        Self::new(Exit::Failure, message)
    }
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Failure, error.to_string())
    }
}
