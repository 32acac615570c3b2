//! What a guard process waits for: a point in time, a change of its children, a socket.

use super::deadline::now;
use super::descendants::{Spare, signal_all};
use crate::exit::Problem;
use nix::sys::signal::{SigSet, SigmaskHow, Signal as Blocked};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, getpid, set_child_subreaper};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Signals that are sent to all processes of a service when it is stopped also reach the wrapper,
/// which passes them on; a guard killed by one would take the command with it. The others would
/// stop a guard for using the terminal, or kill it for exceeding `ulimit -f`.
const BLOCKED: [Blocked; 11] = [
    Blocked::SIGCHLD,
    Blocked::SIGHUP,
    Blocked::SIGINT,
    Blocked::SIGQUIT,
    Blocked::SIGTERM,
    Blocked::SIGUSR1,
    Blocked::SIGUSR2,
    Blocked::SIGTSTP,
    Blocked::SIGTTIN,
    Blocked::SIGTTOU,
    Blocked::SIGXFSZ,
];

/// Pause between two attempts to kill what is left.
pub(super) const KILL_AGAIN: Duration = Duration::from_millis(10);

/// What is still running this long after SIGKILL can't be killed from here: it is stuck in the
/// kernel, or belongs to another user.
pub(super) const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long what is left gets between SIGTERM and SIGKILL, and a guard process for its last
/// message.
pub(super) const GRACE: Duration = Duration::from_secs(1);

fn blocked() -> SigSet {
    BLOCKED.into_iter().collect()
}

/// Runs `start` with all of these signals blocked, so that the guard process it starts inherits the
/// mask: otherwise one of them might kill it before it has blocked them itself.
pub(super) fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> io::Result<T> {
    let before = blocked().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let started = start();
    before.thread_set_mask()?;
    Ok(started)
}

/// Makes exceeding the file size limit (`ulimit -f`) an error instead of a fatal signal, for this
/// thread and those it starts.
pub(super) fn block_file_size_signal() -> io::Result<()> {
    SigSet::from_iter([Blocked::SIGXFSZ]).thread_block().map_err(io::Error::from)
}

/// For a process that was started by a guard and inherited its mask: signals that arrived in the
/// meantime take effect now.
pub(super) fn unblock_signals() -> io::Result<()> {
    blocked().thread_unblock().map_err(io::Error::from)
}

/// Wakes a guard process. A guard has one thread and blocks nowhere else.
pub(super) struct Waker {
    children: SignalFd,
    timer: OwnedFd,
}

impl Waker {
    /// Makes this process a subreaper and blocks the signals that would terminate it.
    pub(super) fn new() -> Result<Self, Problem> {
        blocked().thread_block().map_err(io::Error::from)?;
        let of_children = SigSet::from_iter([Blocked::SIGCHLD]);
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let children = SignalFd::with_flags(&of_children, flags).map_err(io::Error::from)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags).map_err(io::Error::from)?;
        set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;
        Ok(Self { children, timer })
    }

    /// Returns at `until` (as in [`now`]), or when a child or one of the sockets has something new.
    /// Never misses an event, but may wake up spuriously.
    pub(super) fn wait(
        &self,
        until: Duration,
        sockets: &[(&UnixStream, PollFlags)],
    ) -> Result<(), Problem> {
        let it_value = Timespec {
            tv_sec: i64::try_from(until.as_secs()).unwrap_or(i64::MAX),
            // Zero would disarm the timer.
            tv_nsec: i64::from(until.subsec_nanos().max(1)),
        };
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once).map_err(io::Error::from)?;
        let mut fds = vec![
            PollFd::new(&self.children, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
        ];
        fds.extend(sockets.iter().map(|(socket, flags)| PollFd::new(socket, *flags)));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        while let Ok(Some(_)) = self.children.read_signal() {}
        Ok(())
    }
}

/// The killing of everything below this process, once it has begun.
#[derive(Default)]
pub(super) struct Killing {
    since: Option<Duration>,
}

impl Killing {
    pub(super) fn begin(&mut self) {
        self.since.get_or_insert_with(now);
    }

    pub(super) fn has_begun(&self) -> bool {
        self.since.is_some()
    }

    /// For how long it has been going on; `None` if it has not begun.
    pub(super) fn lasts(&self) -> Option<Duration> {
        self.since.map(|since| now().saturating_sub(since))
    }

    /// Tries once more, if it has begun. Returns whether it is time to give up.
    pub(super) fn again(&self, spare: &Spare<'_>) -> bool {
        let Some(lasts) = self.lasts() else { return false };
        signal_all(Signal::KILL, spare);
        lasts > KILL_TIMEOUT
    }
}
