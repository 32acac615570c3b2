//! The signals that the wrapper passes on to its command, or that end a wait for a lock.

use crate::exit::Problem;
use nix::sys::signal::{SigSet, Signal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// SIGCONT: the wrapper passes it on, so that a stopped command continues too.
pub(super) const CONTINUE: i32 = 18;

/// SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGCONT, SIGWINCH.
const PASSED_ON: [i32; 8] = [1, 2, 3, 10, 12, 15, CONTINUE, 28];

/// Signals that matter only to a running command.
const FOR_THE_COMMAND: [i32; 2] = [CONTINUE, 28];

/// Blocks the signals that would terminate this program, until [`Signals::listen`]. Call it before
/// any thread is started.
pub(crate) fn hold_back() {
    // It fails only for invalid arguments.
    let _ = ending().thread_block();
}

fn ending() -> SigSet {
    PASSED_ON
        .into_iter()
        .filter(|number| is_end(*number))
        .filter_map(|number| Signal::try_from(number).ok())
        .collect()
}

/// The signals received so far.
pub(crate) struct Signals {
    came: mpsc::Receiver<i32>,
}

impl Signals {
    /// Installs the handlers: from now on the signals don't terminate this program, but arrive
    /// here.
    pub(crate) fn listen() -> Result<Self, Problem> {
        let (told, came) = mpsc::channel(16);
        let ignored = ignored();
        // Signals that were ignored from the start, as with nohup, stay ignored.
        for number in PASSED_ON.into_iter().filter(|number| ignored >> (number - 1) & 1 == 0) {
            let mut heard = signal(SignalKind::from_raw(number))?;
            let told = told.clone();
            tokio::spawn(async move {
                while heard.recv().await.is_some() && told.send(number).await.is_ok() {}
            });
        }
        // Those that were blocked are delivered now.
        let _ = ending().thread_unblock();
        Ok(Self { came })
    }

    pub(super) async fn next(&mut self) -> i32 {
        match self.came.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// The next signal that ends a wait.
    pub(crate) async fn end(&mut self) -> i32 {
        loop {
            let signal = self.next().await;
            if is_end(signal) {
                return signal;
            }
        }
    }

    /// The same, if one has already arrived.
    pub(super) fn try_end(&mut self) -> Option<i32> {
        std::iter::from_fn(|| self.came.try_recv().ok()).find(|signal| is_end(*signal))
    }
}

/// Whether it terminates a program that does not handle it.
pub(super) fn is_end(signal: i32) -> bool {
    !FOR_THE_COMMAND.contains(&signal)
}

/// A bit for each signal that this process ignores.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
