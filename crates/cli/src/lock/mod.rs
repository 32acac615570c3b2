//! `holdfast lock`: runs a command under a lock.
//!
//! The wrapper gets in line and keeps the lease of a lock, on Holdfast servers or on another engine
//! (`held.rs`). Below it are two guard processes, the outer one (`guard.rs`) and the inner one
//! (`runner.rs`), and below them the command, in its own process group. Each of the three kills
//! everything below it when the lease runs out or another of the three dies, so any two of them may
//! be stopped or killed. The inner guard and the wrapper exchange the messages in `messages.rs`; all
//! of them read the same deadlines (`deadline.rs`).

mod deadline;
mod descendants;
mod engine;
mod env;
mod guard;
mod handoff;
mod held;
mod messages;
mod native;
mod process;
mod runner;
mod shim;
mod signals;
mod target;
mod terminal;
mod wait;
mod wrapper;

pub(crate) use guard::GuardChild;
pub(crate) use runner::GuardRunner;
pub(crate) use shim::GuardShim;
pub(crate) use signals::{Signals, hold_back as hold_back_signals};

use crate::acquire_flags::AcquireFlags;
use crate::duration;
use crate::exit::{Exit, Problem};
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::time::Duration;
use target::LockTarget;
use tokio::runtime::{Builder, Runtime};
use wrapper::RunOutcome;

/// A shorter lease would expire whenever the machine is busy for a moment.
const TTL_MIN: Duration = Duration::from_secs(1);

/// Waits for the lock, runs the command, and releases the lock when the command ends. If the lease
/// can't be kept, the command and everything that it started are ended before the lock is granted to
/// anyone else: SIGTERM when four fifths of the lease have passed without a renewal, SIGKILL at nine
/// tenths.
///
/// The command finds HOLDFAST_TOKEN (the fencing token), HOLDFAST_LOCK (the name) and
/// HOLDFAST_SECRET in its environment, and in HOLDFAST_ENDED how the previous holder ended. With
/// `--on`, what the engine does not have is not set.
///
/// Exits with the command's exit code, 128+N if signal N ended it. 75: not acquired, or refused.
/// 76: the lock was lost. 69: no server answers. 64: usage.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Only one at a time; others wait:
    holdfast lock nightly-report -- sh -c 'echo working, token $HOLDFAST_TOKEN'

  Or not at all, if it is running already (exit code 75):
    holdfast lock nightly-report --try -- true

  Two locks in one step, waiting at most 30 seconds:
    holdfast lock seat-12A seat-12B --wait 30s -- true

  At most four at a time, and a note for whoever looks:
    holdfast lock download --permits 4 --note \"batch 7\" -- true

  On an engine that you already run, by its URL:
    holdfast lock --on redis://127.0.0.1:6379 nightly-report -- true")]
pub(crate) struct Lock {
    /// The lock; several are taken in one step
    #[arg(required = true, value_name = "NAME")]
    names: Vec<OsString>,
    /// The command, after `--`
    #[arg(required = true, last = true, value_name = "CMD", num_args = 1..)]
    command: Vec<OsString>,
    /// How long until the lock is freed if this machine dies; renewed in the background
    #[arg(long, default_value = "15s", value_parser = parse_ttl)]
    ttl: Duration,
    #[command(flatten)]
    wanted: AcquireFlags,
    /// After a loss, wait in line again and rerun the command
    #[arg(long)]
    elect: bool,
    #[command(flatten)]
    target: LockTarget,
}

fn parse_ttl(text: &str) -> Result<Duration, String> {
    let ttl = duration::parse(text)?;
    if ttl < TTL_MIN {
        return Err("a lease of less than 1s can't be kept on a busy machine".to_owned());
    }
    Ok(ttl)
}

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(1).enable_all().build()
}

impl Lock {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        wait::block_file_size_signal()?;
        // It outlives the runs, so that no signal is missed between two of them.
        let listening = runtime()?;
        let mut signals = listening.block_on(async { Signals::listen() })?;
        let ended = self.run_until_done(&mut signals);
        listening.shutdown_background();
        ended
    }

    fn run_until_done(&self, signals: &mut Signals) -> Result<Exit, Problem> {
        loop {
            // One per run, so that nothing renews a lost lock any longer.
            let runtime = runtime()?;
            let ran = runtime.block_on(wrapper::run(self, signals));
            runtime.shutdown_background();
            match ran? {
                RunOutcome::Done(exit) => return Ok(exit),
                RunOutcome::Lost { end_signal: None } if self.elect => {}
                RunOutcome::Lost { end_signal: Some(signal) } if self.elect => {
                    return Ok(Exit::of_signal(signal));
                }
                RunOutcome::Lost { .. } => return Ok(Exit::Lost),
            }
        }
    }

    /// The names, for a message, and the engine if they are not on Holdfast servers.
    fn shown(&self) -> String {
        let names = self.names.join(OsStr::new(", "));
        let names = names.to_string_lossy();
        match &self.target {
            LockTarget::Servers(_) => names.into_owned(),
            LockTarget::Engine(engine) => format!("{names} on {}", engine.name()),
        }
    }
}
