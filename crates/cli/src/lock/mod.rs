//! `holdfast lock`: runs a command under a lock.
//!
//! The wrapper stands in line and keeps the lease. Below it are two guard processes, the outer
//! (`guard.rs`) and the inner one (`runner.rs`), and below them the command, in a process group of
//! its own. All three end everything below them when the lease runs out or one of them dies, so two
//! of them may be stopped or killed. The inner one talks with the wrapper in `words.rs`; all read
//! the same deadlines (`deadline.rs`).

mod deadline;
mod descendants;
mod env;
mod guard;
mod handoff;
mod process;
mod runner;
mod shim;
mod signals;
mod terminal;
mod wait;
mod words;
mod wrapper;

pub(crate) use guard::GuardChild;
pub(crate) use runner::GuardRunner;
pub(crate) use shim::GuardShim;
pub(crate) use signals::{Signals, hold_back as hold_back_signals};

use crate::duration;
use crate::exit::{Exit, Problem};
use crate::server_flags::ServerFlags;
use crate::wanted::Wanted;
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use wrapper::Ran;

/// A shorter lease would end whenever the machine is busy for a moment.
const TTL_MIN: Duration = Duration::from_secs(1);

/// Waits for the lock, runs the command, and lets go when it ends. If the lease can't be kept, the
/// command and everything that it started are ended before anybody else is served: SIGTERM when
/// four fifths of the lease have passed without a renewal, SIGKILL at nine tenths.
///
/// The command finds HOLDFAST_TOKEN (the fencing token), HOLDFAST_LOCK (the name) and
/// HOLDFAST_SECRET in its environment, and in HOLDFAST_ENDED how the holder before it ended.
///
/// Ends with the command's exit code, 128+N if signal N ended it. 75: not acquired, or refused.
/// 76: the lock was lost. 69: no server answers. 64: usage.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Only one at a time; others wait:
    holdfast lock nightly-report -- sh -c 'echo working, token $HOLDFAST_TOKEN'

  Or not at all, if somebody is at it (exit code 75):
    holdfast lock nightly-report --try -- true

  Two locks in one step, waiting at most 30 seconds:
    holdfast lock seat-12A seat-12B --wait 30s -- true

  At most four at a time, and a word for whoever looks:
    holdfast lock download --permits 4 --note \"batch 7\" -- true")]
pub(crate) struct Lock {
    /// The lock; several are taken in one step
    #[arg(required = true, value_name = "NAME")]
    names: Vec<OsString>,
    /// The command, after `--`
    #[arg(required = true, last = true, value_name = "CMD", num_args = 1..)]
    command: Vec<OsString>,
    /// How soon the lock is free after this machine died; it is renewed all the time
    #[arg(long, default_value = "15s", value_parser = parse_ttl)]
    ttl: Duration,
    #[command(flatten)]
    wanted: Wanted,
    /// After a loss, stand in line again and run the command anew
    #[arg(long)]
    elect: bool,
    #[command(flatten)]
    server: ServerFlags,
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
            // One for each run: what was lost is renewed no more.
            let runtime = runtime()?;
            let ran = runtime.block_on(wrapper::run(self, signals));
            runtime.shutdown_background();
            match ran? {
                Ran::Done(exit) => return Ok(exit),
                Ran::Lost { told_to_end: None } if self.elect => {}
                Ran::Lost { told_to_end: Some(signal) } if self.elect => {
                    return Ok(Exit::of_signal(signal));
                }
                Ran::Lost { .. } => return Ok(Exit::Lost),
            }
        }
    }

    /// The names, for a message.
    fn shown(&self) -> String {
        self.names.join(OsStr::new(", ")).to_string_lossy().into_owned()
    }
}
