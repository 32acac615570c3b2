//! The messages between the wrapper and its inner guard process: short lines over a socket.

use std::fmt;

/// The longest line: a keyword and an error message.
pub(super) const LINE_BYTES_MAX: usize = 4096;

/// Messages to the guard process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToGuard {
    /// Send this signal to the command's process group.
    Signal(i32),
}

impl fmt::Display for ToGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(signal) => writeln!(f, "signal {signal}"),
        }
    }
}

impl ToGuard {
    pub(super) fn parse(line: &str) -> Option<Self> {
        line.trim_end().strip_prefix("signal ")?.parse().ok().map(Self::Signal)
    }
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandExit {
    Exited(i32),
    Killed(i32),
}

/// Why the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndedBy {
    /// By itself, or by a signal that no guard sent.
    Itself,
    /// The lease ran out.
    Lease,
    /// One of the guarding processes died.
    Guard,
}

/// Messages to the wrapper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ToWrapper {
    /// The command is running: its pid, which is also its process group.
    Started(i32),
    /// It never ran: the exit code, and why.
    NotStarted(u8, String),
    /// It was stopped by this signal.
    Stopped(i32),
    /// It never ran: the lease was already over.
    TooLate,
    Ended {
        how: CommandExit,
        by: EndedBy,
    },
}

impl fmt::Display for ToWrapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started(pid) => writeln!(f, "started {pid}"),
            Self::NotStarted(code, why) => {
                writeln!(f, "not-started {code} {}", why.replace('\n', " "))
            }
            Self::Stopped(signal) => writeln!(f, "stopped {signal}"),
            Self::TooLate => writeln!(f, "too-late"),
            Self::Ended { how, by } => {
                let (how, number) = match how {
                    CommandExit::Exited(code) => ("exited", code),
                    CommandExit::Killed(signal) => ("killed", signal),
                };
                let by = match by {
                    EndedBy::Itself => "itself",
                    EndedBy::Lease => "lease",
                    EndedBy::Guard => "guard",
                };
                writeln!(f, "{how} {number} {by}")
            }
        }
    }
}

impl ToWrapper {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        let ended = |how: fn(i32) -> CommandExit| {
            let (number, by) = rest.split_once(' ')?;
            let by = match by {
                "itself" => EndedBy::Itself,
                "lease" => EndedBy::Lease,
                "guard" => EndedBy::Guard,
                _ => return None,
            };
            Some(Self::Ended { how: how(number.parse().ok()?), by })
        };
        match word {
            "started" => rest.parse().ok().map(Self::Started),
            "not-started" => {
                let (code, why) = rest.split_once(' ')?;
                Some(Self::NotStarted(code.parse().ok()?, why.to_owned()))
            }
            "too-late" => Some(Self::TooLate),
            "stopped" => rest.parse().ok().map(Self::Stopped),
            "exited" => ended(CommandExit::Exited),
            "killed" => ended(CommandExit::Killed),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_a_round_trip() {
        let word = ToGuard::Signal(15);
        assert_eq!(ToGuard::parse(&word.to_string()), Some(word));
        let ended = |how, by| ToWrapper::Ended { how, by };
        for word in [
            ToWrapper::Started(7),
            ToWrapper::NotStarted(127, "no such file".to_owned()),
            ToWrapper::Stopped(20),
            ToWrapper::TooLate,
            ended(CommandExit::Exited(3), EndedBy::Itself),
            ended(CommandExit::Killed(9), EndedBy::Lease),
            ended(CommandExit::Killed(9), EndedBy::Guard),
        ] {
            assert_eq!(ToWrapper::parse(&word.to_string()), Some(word));
        }
        assert_eq!(ToGuard::parse("signal x"), None);
        assert_eq!(ToWrapper::parse("exited x itself"), None);
    }
}
