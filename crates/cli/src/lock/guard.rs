//! The guard process: between the wrapper and its command, so that the command can't outlive the
//! lease.
//!
//! It holds the last deadlines itself and looks at a clock that also runs while the machine sleeps,
//! so it needs nobody to be awake but itself. The wrapper's end of the socket closes when the
//! wrapper dies, however it dies: then the command is killed at once.

use super::words::{Deadlines, How, LINE_BYTES_MAX, ToGuard, ToWrapper, now};
use crate::exit::{Exit, Problem};
use clap::Args;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::ffi::OsString;
use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Started by `holdfast lock`, never by hand.
#[derive(Debug, Args)]
pub(crate) struct GuardChild {
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl GuardChild {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        let mut wrapper = Wrapper { socket: socket.into(), heard: Vec::new() };
        let (deadlines, stdin) = wrapper.first_word()?;
        let [program, args @ ..] = self.command.as_slice() else {
            return Err(Problem::usage("no command"));
        };
        let started =
            Command::new(program).args(args).stdin(Stdio::from(stdin)).process_group(0).spawn();
        match started {
            Ok(child) => Guard::new(wrapper, child, deadlines)?.watch(),
            Err(error) => {
                // As shells do.
                let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
                let why = format!("can't run {}: {error}", program.to_string_lossy());
                wrapper.tell(&ToWrapper::NotStarted(code, why));
                Ok(Exit::Success)
            }
        }
    }
}

struct Wrapper {
    socket: UnixStream,
    /// What has come of the next line.
    heard: Vec<u8>,
}

impl Wrapper {
    /// The first deadlines, and with them the command's input.
    fn first_word(&mut self) -> Result<(Deadlines, OwnedFd), Problem> {
        let by_hand = || Problem::usage("this is started by `holdfast lock`, never by hand");
        let mut bytes = [0; LINE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let got = recvmsg(&self.socket, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC);
        let count = got.map_err(|_| by_hand())?.bytes;
        let stdin = rights.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        self.heard.extend(bytes.iter().take(count));
        match (self.next_word(), stdin) {
            (Some(Some(ToGuard::Until(deadlines))), Some(stdin)) => Ok((deadlines, stdin)),
            _ => Err(by_hand()),
        }
    }

    /// Whether there may be more: not if the wrapper is gone.
    fn listen(&mut self) -> bool {
        let mut bytes = [0; LINE_BYTES_MAX];
        match self.socket.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                self.heard.extend(bytes.iter().take(count));
                self.heard.len() <= 2 * LINE_BYTES_MAX
            }
            Err(error) => error.kind() == ErrorKind::Interrupted,
        }
    }

    /// A whole line that was heard; within it nothing, if it makes no sense.
    fn next_word(&mut self) -> Option<Option<ToGuard>> {
        let end = self.heard.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.heard.drain(..=end).collect();
        Some(ToGuard::parse(&String::from_utf8_lossy(&line)))
    }

    fn tell(&mut self, word: &ToWrapper) {
        // If the wrapper is gone, nobody wants to know.
        let _ = self.socket.write_all(word.to_string().as_bytes());
    }
}

struct Guard {
    wrapper: Wrapper,
    child: Child,
    group: Pid,
    deadlines: Deadlines,
    asked: bool,
    killed: bool,
    timer: OwnedFd,
    /// For each stop of the command its signal, then the end.
    news: UnixStream,
}

impl Guard {
    fn new(mut wrapper: Wrapper, child: Child, deadlines: Deadlines) -> Result<Self, Problem> {
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let group = group.ok_or_else(|| "the command has no process id".to_owned())?;
        let (news, teller) = UnixStream::pair()?;
        std::thread::spawn(move || watch_child(group, teller));
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC);
        let timer = timer.map_err(io::Error::from)?;
        wrapper.tell(&ToWrapper::Started(group.as_raw_nonzero().get()));
        Ok(Self { wrapper, child, group, deadlines, asked: false, killed: false, timer, news })
    }

    /// Until the command has ended.
    fn watch(mut self) -> Result<Exit, Problem> {
        let mut wrapper_lives = true;
        loop {
            self.look_at_the_clock()?;
            let (word, news) = self.wait_for_something(wrapper_lives)?;
            if word {
                wrapper_lives = self.wrapper.listen();
                while let Some(word) = self.wrapper.next_word() {
                    self.hear(word);
                }
                if !wrapper_lives {
                    self.kill();
                }
            }
            if news && self.child_has_ended()? {
                return self.report();
            }
        }
    }

    /// Asks or kills if it is time; sets the timer to the next such moment.
    fn look_at_the_clock(&mut self) -> Result<(), Problem> {
        let now = now();
        if now >= self.deadlines.kill_at {
            self.kill();
        } else if now >= self.deadlines.ask_at && !self.asked {
            self.asked = true;
            self.signal(Signal::TERM);
            // A stopped command could not hear it.
            self.signal(Signal::CONT);
        }
        let next = match (self.killed, self.asked) {
            // What is killed needs no clock any more; a zero would switch the timer off too.
            (true, _) => Duration::ZERO,
            (false, true) => self.deadlines.kill_at,
            (false, false) => self.deadlines.ask_at,
        };
        let it_value = Timespec {
            tv_sec: i64::try_from(next.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(next.subsec_nanos()),
        };
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once);
        set.map(drop).map_err(|error| io::Error::from(error).into())
    }

    /// Whether the wrapper says something, and whether the command does.
    fn wait_for_something(&self, wrapper_lives: bool) -> Result<(bool, bool), Problem> {
        let mut fds =
            vec![PollFd::new(&self.news, PollFlags::IN), PollFd::new(&self.timer, PollFlags::IN)];
        if wrapper_lives {
            fds.push(PollFd::new(&self.wrapper.socket, PollFlags::IN));
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        let said = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        Ok((said(2), said(0)))
    }

    fn hear(&mut self, word: Option<ToGuard>) {
        match word {
            Some(ToGuard::Until(deadlines)) => self.deadlines = deadlines,
            Some(ToGuard::Signal(signal)) => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    self.signal(signal);
                }
            }
            // What makes no sense must not keep a command alive.
            Some(ToGuard::Kill) | None => self.kill(),
        }
    }

    fn kill(&mut self) {
        self.killed = true;
        self.signal(Signal::KILL);
    }

    /// The command is not waited for yet, so the number is its own.
    fn signal(&self, signal: Signal) {
        // A group that is gone needs no signal.
        let _ = kill_process_group(self.group, signal);
    }

    fn child_has_ended(&mut self) -> Result<bool, Problem> {
        let mut news = [0; 16];
        let count = self.news.read(&mut news)?;
        match news.get(..count).and_then(<[u8]>::last) {
            None => Ok(true),
            Some(signal) => {
                self.wrapper.tell(&ToWrapper::Stopped(i32::from(*signal)));
                Ok(false)
            }
        }
    }

    fn report(mut self) -> Result<Exit, Problem> {
        let by_lease = self.asked || self.killed;
        if by_lease {
            // What it left running goes with it.
            self.signal(Signal::KILL);
        }
        let status = self.child.wait()?;
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => How::Exited(code),
            (None, signal) => How::Killed(signal.unwrap_or(0)),
        };
        self.wrapper.tell(&ToWrapper::Ended { how, by_lease });
        Ok(Exit::Success)
    }
}

/// Says so whenever the command is stopped, and ends when it does. It is left to be waited for.
fn watch_child(child: Pid, mut teller: UnixStream) {
    loop {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(child), peek) {
            Ok(Some(status)) if status.stopped() => {
                let take = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
                let _ = waitid(WaitId::Pid(child), take);
                let signal = status.stopping_signal().and_then(|signal| u8::try_from(signal).ok());
                if teller.write_all(&[signal.unwrap_or_default()]).is_err() {
                    return;
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => return,
        }
    }
}
