//! The outer guard process: it enforces the deadline in case the wrapper and the inner guard can't.
//!
//! The wrapper, the outer guard and the inner guard (`runner.rs`) are the command's ancestors, in
//! this order. Each of them can kill everything below it, and does so at the deadline or when one
//! of the other two dies. So any two of them may be stopped or killed, and the third still ends the
//! command in time.

use super::deadline::{SharedDeadlines, now};
use super::descendants::{ChildEvent, Spare, next_change};
use super::handoff::{self, Handoff, is_closed};
use super::messages::ToWrapper;
use super::wait::{GRACE, KILL_AGAIN, Killing, Waker};
use crate::exit::{Exit, Problem};
use clap::Args;
use rustix::event::PollFlags;
use std::ffi::OsString;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Child;

/// Started by `holdfast lock`, never by hand.
#[derive(Debug, Args)]
pub(crate) struct GuardChild {
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl GuardChild {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let waker = Waker::new()?;
        let Handoff { starter: wrapper, fds: [stdin, deadlines, talk] } = Handoff::receive()?;
        let (deadlines, mut talk) = (SharedDeadlines::from(deadlines), UnixStream::from(talk));
        if is_closed(&wrapper) || deadlines.too_late() {
            // It is the first message, so there is room for it. If the wrapper is gone, nobody
            // reads it.
            let _ = talk.write_all(ToWrapper::TooLate.to_string().as_bytes());
            return Ok(Exit::Failure);
        }
        let fds = [stdin.as_fd(), deadlines.as_fd(), talk.as_fd()];
        match handoff::start(&["guard-runner"], &self.command, Vec::new(), &fds) {
            Ok((runner, up)) => {
                // They belong to the inner guard: the wrapper must see them close when that one
                // dies.
                drop((stdin, talk));
                Guard { waker, wrapper, deadlines, runner, _up: up }.watch()
            }
            Err(error) => {
                let why = format!("can't start the guard process: {error}");
                let _ = talk.write_all(ToWrapper::NotStarted(126, why).to_string().as_bytes());
                Ok(Exit::Failure)
            }
        }
    }
}

struct Guard {
    waker: Waker,
    wrapper: UnixStream,
    deadlines: SharedDeadlines,
    runner: Child,
    /// Closes when this process dies, which tells the inner guard.
    _up: UnixStream,
}

impl Guard {
    fn watch(self) -> Result<Exit, Problem> {
        let mut killing = Killing::default();
        let mut runner_lives = true;
        loop {
            loop {
                match next_change() {
                    ChildEvent::Changed(pid, status) => {
                        let ended = status.exited() || status.signaled();
                        if ended && pid.as_raw_pid().unsigned_abs() == self.runner.id() {
                            if status.exit_status() == Some(0) {
                                // The command ended by itself: what it left running may go on.
                                return Ok(Exit::Success);
                            }
                            runner_lives = false;
                            killing.begin();
                        }
                    }
                    ChildEvent::Running => break,
                    ChildEvent::Gone => return Ok(Exit::Success),
                }
            }
            let deadlines = self.deadlines.read();
            if is_closed(&self.wrapper) || now() >= deadlines.kill_at {
                killing.begin();
            }
            // The inner guard notices the command's end and reports it, unless it is stopped.
            let patient = runner_lives && killing.lasts().is_none_or(|lasts| lasts < GRACE);
            let spare = if patient { Spare::ChildEvent } else { Spare::Nobody };
            if killing.again(&spare) {
                return Ok(Exit::Failure);
            }
            if killing.has_begun() {
                self.waker.wait(now() + KILL_AGAIN, &[])?;
            } else {
                self.waker.wait(deadlines.kill_at, &[(&self.wrapper, PollFlags::RDHUP)])?;
            }
        }
    }
}
