//! The last step before the command: this process execs the command, which from then on dies with
//! its parent.
//!
//! A parent-death signal is not inherited by children, is tied to the thread that created the
//! process, and is cleared when a program with other privileges is executed. So it is set here, by
//! the process that becomes the command, with a parent that has a single thread.

use super::deadline::SharedDeadlines;
use super::handoff::{Handoff, is_closed, not_started};
use super::messages::ToWrapper;
use super::wait::unblock_signals;
use crate::exit::{Exit, Problem};
use clap::Args;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Started by `holdfast lock`, never by hand.
#[derive(Debug, Args)]
pub(crate) struct GuardShim {
    /// The process that started this one
    #[arg(long)]
    parent: i32,
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl GuardShim {
    /// Returns only if the command was not started.
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
        unblock_signals()?;
        let Handoff { mut starter, fds: [stdin, deadlines] } = Handoff::receive()?;
        let deadlines = SharedDeadlines::from(deadlines);
        let [program, args @ ..] = self.command.as_slice() else {
            return Err(Problem::usage("no command"));
        };
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::from(stdin));
        // A parent that died before the signal was set did not trigger it.
        let orphaned = getppid().is_none_or(|parent| parent.as_raw_pid() != self.parent);
        let word = if orphaned || is_closed(&starter) || deadlines.too_late() {
            ToWrapper::TooLate
        } else {
            let (code, why) = not_started(program, &command.exec());
            ToWrapper::NotStarted(code, why)
        };
        // If nobody reads it, nobody needs to know.
        let _ = starter.write_all(word.to_string().as_bytes());
        Ok(Exit::Failure)
    }
}
