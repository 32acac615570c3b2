//! The inner guard process: it starts the command, passes signals on to it, and reports to the
//! wrapper how it ends.
//!
//! It reads the deadlines itself, by a clock that also runs while the machine sleeps, so it depends
//! on no other process being awake, and it never waits for the wrapper. When the wrapper or the
//! outer guard dies, however it dies, a socket closes: then everything below is killed at once.

use super::deadline::{SharedDeadlines, now};
use super::descendants::{ChildEvent, Spare, next_change, signal_all};
use super::handoff::{self, Handoff, is_closed};
use super::messages::{CommandExit, EndedBy, LINE_BYTES_MAX, ToGuard, ToWrapper};
use super::wait::{GRACE, KILL_AGAIN, Killing, Waker};
use crate::exit::{Exit, Problem};
use clap::Args;
use rustix::event::PollFlags;
use rustix::process::{Pid, Signal, WaitStatus, kill_process_group};
use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Started by `holdfast lock`, never by hand.
#[derive(Debug, Args)]
pub(crate) struct GuardRunner {
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl GuardRunner {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let waker = Waker::new()?;
        let Handoff { starter: guard, fds: [stdin, deadlines, talk] } = Handoff::receive()?;
        let deadlines = SharedDeadlines::from(deadlines);
        let mut wrapper = Lines::new(talk)?;
        if is_closed(&guard) || is_closed(&wrapper.socket) || deadlines.too_late() {
            wrapper.say(&ToWrapper::TooLate);
            return Ok(Exit::Failure);
        }
        let parent = std::process::id().to_string();
        let role = ["guard-shim", "--parent", &parent];
        let fds = [stdin.as_fd(), deadlines.as_fd()];
        let started = handoff::start(&role, &self.command, Vec::new(), &fds);
        drop(stdin);
        let pid = |id: u32| i32::try_from(id).ok().and_then(Pid::from_raw);
        let (command, shim) = match started.map(|(child, shim)| (pid(child.id()), shim)) {
            Ok((Some(command), shim)) => (command, shim),
            Ok((None, _)) => return Err("the command has no process id".to_owned().into()),
            Err(error) => {
                wrapper.say(&ToWrapper::NotStarted(126, format!("can't start: {error}")));
                return Ok(Exit::Success);
            }
        };
        let shim = Some(Lines::new(shim.into())?);
        let runner = Runner {
            waker,
            guard,
            wrapper,
            shim,
            deadlines,
            command,
            ended: None,
            nothing_left: false,
            by: EndedBy::Itself,
            tidy_until: None,
            killing: Killing::default(),
        };
        runner.watch()
    }
}

/// A line-based socket that never blocks.
struct Lines {
    socket: UnixStream,
    received: Vec<u8>,
    /// Lines that did not fit into the socket's buffer yet.
    unsent: Vec<u8>,
    closed: bool,
}

impl Lines {
    fn new(socket: OwnedFd) -> Result<Self, Problem> {
        let socket = UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        Ok(Self { socket, received: Vec::new(), unsent: Vec::new(), closed: false })
    }

    /// Reads what has arrived. A line that is too long counts as the end of the connection.
    fn receive(&mut self) {
        let mut bytes = [0; LINE_BYTES_MAX];
        while !self.closed && self.received.len() <= LINE_BYTES_MAX {
            match self.socket.read(&mut bytes) {
                Ok(0) => self.closed = true,
                Ok(count) => self.received.extend(bytes.iter().take(count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.closed = true,
            }
        }
        self.closed |= !self.received.contains(&b'\n') && self.received.len() > LINE_BYTES_MAX;
    }

    fn next_line(&mut self) -> Option<String> {
        let end = self.received.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.received.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line).into_owned())
    }

    /// Queues a line and sends what there is room for.
    fn say(&mut self, word: &ToWrapper) {
        // A stopped wrapper need not learn of every stop of its command.
        if self.unsent.is_empty() || !matches!(word, ToWrapper::Stopped(_)) {
            self.unsent.extend(word.to_string().into_bytes());
        }
        self.send();
    }

    fn send(&mut self) {
        while !self.unsent.is_empty() && !self.closed {
            match self.socket.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.closed = true,
            }
        }
    }

    /// The events to poll for.
    fn interest(&self) -> PollFlags {
        if self.unsent.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT }
    }
}

struct Runner {
    waker: Waker,
    guard: UnixStream,
    wrapper: Lines,
    /// `None` once it has become the command.
    shim: Option<Lines>,
    deadlines: SharedDeadlines,
    /// The command's pid and process group.
    command: Pid,
    /// How the command ended. Its pid may be reused from then on.
    ended: Option<CommandExit>,
    /// Whether nothing is running below this process.
    nothing_left: bool,
    by: EndedBy,
    /// When to kill what is left of a command that was itself killed by a signal.
    tidy_until: Option<Duration>,
    killing: Killing,
}

impl Runner {
    /// Runs until the command, and everything that must end with it, has ended.
    fn watch(mut self) -> Result<Exit, Problem> {
        loop {
            self.look_at_children();
            if let Some(word) = self.read_shim() {
                return self.report(&word);
            }
            self.read_wrapper();
            if self.wrapper.closed || is_closed(&self.guard) {
                self.cut(EndedBy::Guard);
            }
            let next = self.look_at_the_clock();
            if let Some(how) = self.ended
                && self.is_over(how)
            {
                return self.report(&ToWrapper::Ended { how, by: self.by });
            }
            if !self.killing.has_begun() {
                let mut sockets = vec![
                    (&self.guard, PollFlags::RDHUP),
                    (&self.wrapper.socket, self.wrapper.interest()),
                ];
                sockets.extend(self.shim.as_ref().map(|shim| (&shim.socket, PollFlags::IN)));
                self.waker.wait(next, &sockets)?;
                continue;
            }
            // Faster than searching for all of them.
            self.signal_group(Signal::KILL);
            if self.killing.again(&Spare::Nobody) {
                let how = self.ended.unwrap_or(CommandExit::Killed(Signal::KILL.as_raw()));
                return self.report(&ToWrapper::Ended { how, by: self.by });
            }
            self.waker.wait(now() + KILL_AGAIN, &[])?;
        }
    }

    fn look_at_children(&mut self) {
        loop {
            match next_change() {
                ChildEvent::Changed(pid, status) if pid == self.command => self.note(status),
                // Descendants that were reparented to this process.
                ChildEvent::Changed(..) => {}
                ChildEvent::Running => return,
                ChildEvent::Gone => {
                    self.nothing_left = true;
                    return;
                }
            }
        }
    }

    fn note(&mut self, status: WaitStatus) {
        match (status.stopping_signal(), status.exit_status(), status.terminating_signal()) {
            (Some(signal), ..) => self.wrapper.say(&ToWrapper::Stopped(signal)),
            (None, Some(code), _) => self.ended = Some(CommandExit::Exited(code)),
            (None, None, signal) => self.ended = Some(CommandExit::Killed(signal.unwrap_or(0))),
        }
    }

    /// The message to report if the shim failed to become the command.
    fn read_shim(&mut self) -> Option<ToWrapper> {
        let shim = self.shim.as_mut()?;
        shim.receive();
        if let Some(line) = shim.next_line() {
            return ToWrapper::parse(&line);
        }
        if shim.closed {
            self.shim = None;
            self.wrapper.say(&ToWrapper::Started(self.command.as_raw_pid()));
        }
        None
    }

    fn read_wrapper(&mut self) {
        self.wrapper.send();
        self.wrapper.receive();
        while let Some(line) = self.wrapper.next_line() {
            match ToGuard::parse(&line) {
                Some(ToGuard::Signal(signal)) => {
                    if let Some(signal) = Signal::from_named_raw(signal) {
                        self.signal_group(signal);
                    }
                }
                // A message that makes no sense must not keep a command alive.
                None => self.cut(EndedBy::Guard),
            }
        }
    }

    /// Kills everything if it is time to, or asks it to terminate. Returns the next such time.
    fn look_at_the_clock(&mut self) -> Duration {
        let deadlines = self.deadlines.read();
        let now = now();
        if now >= deadlines.kill_at {
            self.cut(EndedBy::Lease);
        } else if now >= deadlines.ask_at && self.by == EndedBy::Itself {
            self.by = EndedBy::Lease;
            ask_all();
        }
        if self.tidy_until.is_some_and(|until| now >= until) {
            self.killing.begin();
        }
        let next = if self.by == EndedBy::Itself { deadlines.ask_at } else { deadlines.kill_at };
        self.tidy_until.map_or(next, |until| next.min(until))
    }

    /// Whether there is nothing left to do after the command has ended.
    fn is_over(&mut self, how: CommandExit) -> bool {
        match (how, self.by) {
            _ if self.nothing_left => true,
            // What it leaves running, it leaves on purpose.
            (CommandExit::Exited(_), EndedBy::Itself) => true,
            (CommandExit::Killed(_), EndedBy::Itself) => {
                if self.tidy_until.is_none() {
                    self.tidy_until = Some(now() + GRACE);
                    ask_all();
                }
                false
            }
            (_, EndedBy::Lease | EndedBy::Guard) => {
                self.killing.begin();
                false
            }
        }
    }

    fn cut(&mut self, by: EndedBy) {
        if self.by == EndedBy::Itself {
            self.by = by;
        }
        self.killing.begin();
    }

    fn signal_group(&self, signal: Signal) {
        if self.ended.is_none() {
            // If the group is gone, the error does not matter.
            let _ = kill_process_group(self.command, signal);
        }
    }

    /// Sends the message, and waits until the wrapper has room for it: nothing is left to guard.
    fn report(&mut self, word: &ToWrapper) -> Result<Exit, Problem> {
        self.wrapper.say(word);
        while !self.wrapper.unsent.is_empty() && !self.wrapper.closed {
            self.waker.wait(now() + GRACE, &[(&self.wrapper.socket, PollFlags::OUT)])?;
            self.wrapper.send();
        }
        Ok(Exit::Success)
    }
}

fn ask_all() {
    // A stopped process acts on SIGTERM only once it continues.
    for signal in [Signal::TERM, Signal::CONT] {
        signal_all(signal, &Spare::Nobody);
    }
}
