//! What the wrapper and its guard process say to each other: short lines over a socket.

use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::time::Duration;

/// The longest line: a word and an error message.
pub(super) const LINE_BYTES_MAX: usize = 4096;

/// Time since the machine booted, sleep included: the same clock for both processes.
pub(super) fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// When the command must have ended, unless something better is heard before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deadlines {
    /// It is asked to end.
    pub(super) ask_at: Duration,
    /// It is killed.
    pub(super) kill_at: Duration,
}

impl Deadlines {
    /// The lease is surely good for so long: at its end the command is dead, and a tenth of the
    /// lease before it is asked to end.
    pub(super) fn of(good_until: Duration, ttl: Duration) -> Self {
        Self { ask_at: good_until.saturating_sub(ttl / 10), kill_at: good_until }
    }
}

/// What the guard process hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToGuard {
    Until(Deadlines),
    /// For the command's process group.
    Signal(i32),
    Kill,
}

impl fmt::Display for ToGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(Deadlines { ask_at, kill_at }) => {
                writeln!(f, "until {} {}", ask_at.as_nanos(), kill_at.as_nanos())
            }
            Self::Signal(signal) => writeln!(f, "signal {signal}"),
            Self::Kill => writeln!(f, "kill"),
        }
    }
}

impl ToGuard {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["until", ask, kill] => {
                let at = |text: &str| text.parse().ok().map(Duration::from_nanos);
                Some(Self::Until(Deadlines { ask_at: at(ask)?, kill_at: at(kill)? }))
            }
            ["signal", signal] => signal.parse().ok().map(Self::Signal),
            ["kill"] => Some(Self::Kill),
            _ => None,
        }
    }
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Exited(i32),
    Killed(i32),
}

/// What the wrapper hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ToWrapper {
    /// The command runs: its process, which is also its group.
    Started(i32),
    /// It never ran: the code to end with, and why.
    NotStarted(u8, String),
    /// It was stopped, by that signal.
    Stopped(i32),
    Ended {
        how: How,
        /// Whether it was ended because the lease was.
        by_lease: bool,
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
            Self::Ended { how, by_lease } => {
                let (how, number) = match how {
                    How::Exited(code) => ("exited", code),
                    How::Killed(signal) => ("killed", signal),
                };
                writeln!(f, "{how} {number} {by_lease}")
            }
        }
    }
}

impl ToWrapper {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        let ended = |how: fn(i32) -> How| {
            let (number, by_lease) = rest.split_once(' ')?;
            Some(Self::Ended { how: how(number.parse().ok()?), by_lease: by_lease.parse().ok()? })
        };
        match word {
            "started" => rest.parse().ok().map(Self::Started),
            "not-started" => {
                let (code, why) = rest.split_once(' ')?;
                Some(Self::NotStarted(code.parse().ok()?, why.to_owned()))
            }
            "stopped" => rest.parse().ok().map(Self::Stopped),
            "exited" => ended(How::Exited),
            "killed" => ended(How::Killed),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let (ask_at, kill_at) = (Duration::from_millis(12), Duration::from_secs(13));
        let until = ToGuard::Until(Deadlines { ask_at, kill_at });
        for word in [until, ToGuard::Signal(15), ToGuard::Kill] {
            assert_eq!(ToGuard::parse(&word.to_string()), Some(word));
        }
        let ended = |how, by_lease| ToWrapper::Ended { how, by_lease };
        for word in [
            ToWrapper::Started(7),
            ToWrapper::NotStarted(127, "no such file".to_owned()),
            ToWrapper::Stopped(20),
            ended(How::Exited(3), false),
            ended(How::Killed(9), true),
        ] {
            assert_eq!(ToWrapper::parse(&word.to_string()), Some(word));
        }
        assert_eq!(ToGuard::parse("until 1"), None);
        assert_eq!(ToWrapper::parse("exited x true"), None);
    }

    #[test]
    fn a_command_is_asked_before_it_is_killed() {
        let seconds = Duration::from_secs;
        let deadlines = Deadlines::of(seconds(109), seconds(10));
        assert_eq!(deadlines, Deadlines { ask_at: seconds(108), kill_at: seconds(109) });
    }
}
