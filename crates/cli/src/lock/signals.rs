//! The signals that the wrapper passes on to its command, or that end a wait for a lock.

use crate::exit::Problem;
use nix::sys::signal::{SigSet, Signal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// SIGCONT: what was stopped with the command goes on with it.
pub(super) const CONTINUE: i32 = 18;

/// SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGCONT, SIGWINCH.
const PASSED_ON: [i32; 8] = [1, 2, 3, 10, 12, 15, CONTINUE, 28];

/// Those that only mean something to a command that runs.
const FOR_THE_COMMAND: [i32; 2] = [CONTINUE, 28];

/// Holds back the signals that end a program that does not handle them, until [`Signals::listen`].
/// Called before any thread is started.
pub(crate) fn hold_back() {
    // It fails only for arguments that make no sense.
    let _ = ending().thread_block();
}

fn ending() -> SigSet {
    PASSED_ON
        .into_iter()
        .filter(|number| is_end(*number))
        .filter_map(|number| Signal::try_from(number).ok())
        .collect()
}

/// Signals that have come.
pub(crate) struct Signals {
    came: mpsc::Receiver<i32>,
}

impl Signals {
    /// From now on they end nothing, but are heard here.
    pub(crate) fn listen() -> Result<Self, Problem> {
        let (told, came) = mpsc::channel(16);
        let ignored = ignored();
        // What was ignored from the start, as with nohup, stays so.
        for number in PASSED_ON.into_iter().filter(|number| ignored >> (number - 1) & 1 == 0) {
            let mut heard = signal(SignalKind::from_raw(number))?;
            let told = told.clone();
            tokio::spawn(async move {
                while heard.recv().await.is_some() && told.send(number).await.is_ok() {}
            });
        }
        // Those that were held back come now.
        let _ = ending().thread_unblock();
        Ok(Self { came })
    }

    pub(super) async fn next(&mut self) -> i32 {
        match self.came.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// One that tells to give up waiting.
    pub(crate) async fn end(&mut self) -> i32 {
        loop {
            let signal = self.next().await;
            if is_end(signal) {
                return signal;
            }
        }
    }

    /// The same, if it has come already.
    pub(super) fn try_end(&mut self) -> Option<i32> {
        std::iter::from_fn(|| self.came.try_recv().ok()).find(|signal| is_end(*signal))
    }
}

/// Whether it ends a program that does not handle it.
pub(super) fn is_end(signal: i32) -> bool {
    !FOR_THE_COMMAND.contains(&signal)
}

/// A bit for each signal that this process ignores.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
