//! The guard processes and the command below them, as seen by the wrapper.

use super::deadline::{Deadlines, SharedDeadlines};
use super::descendants::{
    ChildEvent, Descendants, EarlierProcesses, Spare, next_change, signal_all,
};
use super::env::Variables;
use super::handoff;
use super::messages::{LINE_BYTES_MAX, ToGuard, ToWrapper};
use super::wait::{KILL_AGAIN, KILL_TIMEOUT, with_signals_blocked};
use crate::exit::Problem;
use rustix::process::{Pid, Signal, getpid, set_child_subreaper};
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Child;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::time::{sleep, timeout};

/// A guard process that does not accept a message within this time is taken to be stopped.
const MESSAGE_TIMEOUT: Duration = Duration::from_millis(200);

pub(super) struct Process {
    /// The outer guard process; `None` once it has been reaped.
    guard: Option<Child>,
    /// Closes when the outer guard dies.
    guard_lives: UnixStream,
    to_runner: OwnedWriteHalf,
    from_runner: BufReader<OwnedReadHalf>,
    deadlines: SharedDeadlines,
    /// The command's process group, once it runs.
    group: Option<Pid>,
    /// Children that this process had before: they don't belong to the command.
    others: EarlierProcesses,
    /// Fires on SIGCHLD.
    children: Signals,
}

/// What the wrapper waits for while the command is running.
pub(super) enum Event {
    /// A message from the inner guard process; `None` if it or the outer one is gone.
    Message(Option<ToWrapper>),
    /// A child has ended; [`Process::reap`] collects it.
    ChildEnded,
}

impl Process {
    /// Starts the guard processes, which start the command.
    pub(super) fn start(
        command: &[OsString],
        variables: Variables,
        deadlines: Deadlines,
    ) -> Result<Self, Problem> {
        // Installed before the guards are started, so that they don't inherit an ignored SIGCHLD.
        let signals = signal(SignalKind::child())?;
        // Processes orphaned by a dying guard are reparented to this process, which kills them.
        set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;
        let mut others =
            EarlierProcesses::find().map_err(|error| format!("can't read /proc: {error}"))?;
        let deadlines = SharedDeadlines::new(deadlines)
            .map_err(|error| format!("can't write to shared memory: {error}; see `ulimit -f`"))?;
        let (ours, theirs) = StdUnixStream::pair()?;
        let stdin = io::stdin();
        let fds = [stdin.as_fd(), deadlines.as_fd(), theirs.as_fd()];
        let start = || handoff::start(&["guard-child"], command, variables, &fds);
        let (guard, guard_lives) = with_signals_blocked(start)
            .flatten()
            .map_err(|error| format!("can't start the guard process: {error}"))?;
        others.command_begins_with(guard.id());
        for socket in [&ours, &guard_lives] {
            socket.set_nonblocking(true)?;
        }
        let (from_runner, to_runner) = UnixStream::from_std(ours)?.into_split();
        Ok(Self {
            guard: Some(guard),
            guard_lives: UnixStream::from_std(guard_lives)?,
            to_runner,
            from_runner: BufReader::new(from_runner),
            deadlines,
            group: None,
            others,
            children: signals,
        })
    }

    /// The next event. Cancel-safe, if `line` is passed again to the next call.
    pub(super) async fn next(&mut self, line: &mut Vec<u8>) -> Event {
        let mut bounded = (&mut self.from_runner).take(LINE_BYTES_MAX as u64);
        let mut nothing = [0];
        tokio::select! {
            // The last message of a guard that exited normally must not be lost.
            biased;
            read = bounded.read_until(b'\n', line) => match read {
                Ok(_) if line.ends_with(b"\n") => {
                    let word = ToWrapper::parse(&String::from_utf8_lossy(line));
                    line.clear();
                    if let Some(ToWrapper::Started(pid)) = word {
                        self.group = Pid::from_raw(pid);
                    }
                    Event::Message(word)
                }
                _ => Event::Message(None),
            },
            _ = self.guard_lives.read(&mut nothing) => Event::Message(None),
            Some(()) = self.children.recv() => Event::ChildEnded,
        }
    }

    /// Reaps children that have ended; returns whether there are none left. Never blocks.
    pub(super) fn reap(&mut self) -> bool {
        loop {
            let (pid, status) = match next_change() {
                ChildEvent::Changed(pid, status) => (pid, status),
                ChildEvent::Running => return false,
                ChildEvent::Gone => return true,
            };
            let ended = status.exited() || status.signaled();
            let id = pid.as_raw_pid().unsigned_abs();
            if ended {
                self.others.ended(pid);
            }
            if ended && self.guard.as_ref().is_some_and(|guard| guard.id() == id) {
                self.guard = None;
            }
        }
    }

    pub(super) fn group(&self) -> Option<Pid> {
        self.group
    }

    pub(super) async fn send_message(&mut self, word: ToGuard) {
        let line = word.to_string();
        // A guard that is gone or stopped is detected elsewhere.
        let _ = timeout(MESSAGE_TIMEOUT, self.to_runner.write_all(line.as_bytes())).await;
    }

    /// Publishes the deadlines of a renewed lease. Never blocks.
    pub(super) fn renewed(&self, deadlines: Deadlines) -> io::Result<()> {
        self.deadlines.write(deadlines)
    }

    /// Kills the command and its guards, whatever state they are in. Returns the processes that
    /// could not be killed, or may not have been.
    pub(super) async fn end_all(&mut self) -> Descendants {
        let began = Instant::now();
        loop {
            let left = signal_all(Signal::KILL, &Spare::EarlierProcesses(&self.others));
            if self.reap() {
                return Descendants::default();
            }
            // Without other children, only having no children proves that nothing is left: a scan
            // of /proc may miss a process that changes its parent in the meantime.
            let nothing = self.others.may_exist() && left.is_nothing();
            if nothing || began.elapsed() > KILL_TIMEOUT {
                return left;
            }
            sleep(KILL_AGAIN).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has sent its last message, or is of no use any more. While the sockets are open it
        // does not take this process for dead, so it leaves alone what the command left running on
        // purpose.
        if let Some(guard) = &mut self.guard {
            let _ = guard.kill();
            let _ = guard.wait();
        }
    }
}
