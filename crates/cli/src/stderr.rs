//! What the program says on standard error.
//!
//! Standard error may be a full disk, a terminal that was closed, or a pipe that nobody reads. None
//! of that may end the program early or make it wait while it keeps a lock: a thread of its own does
//! the writing, and what can't be written is dropped.

use nix::sys::signal::{SigSet, Signal};
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// Messages that wait to be written; what comes then is dropped.
const QUEUED_MAX: usize = 256;

/// How long the program waits at its end for what is not written yet.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

enum Job {
    Write(String),
    /// Everything before has been written: says so.
    Flush(SyncSender<()>),
}

/// None if there can't be another thread.
static WRITER: OnceLock<Option<SyncSender<Job>>> = OnceLock::new();

/// Writes a line. Never fails, and blocks only if the system allows no further thread.
pub(crate) fn line(text: &str) {
    let line = format!("{text}\n");
    match WRITER.get_or_init(start) {
        // If the queue is full, nobody reads.
        Some(writer) => drop(writer.try_send(Job::Write(line))),
        None => drop(io::stderr().write_all(line.as_bytes())),
    }
}

/// Waits a moment until everything is written. To be called before the program ends.
pub(crate) fn flush() {
    if let Some(Some(writer)) = WRITER.get() {
        let (done, wait) = sync_channel(1);
        if writer.try_send(Job::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(FLUSH_PATIENCE);
        }
    }
}

fn start() -> Option<SyncSender<Job>> {
    let (sender, jobs) = sync_channel(QUEUED_MAX);
    thread::Builder::new().name("stderr".to_owned()).spawn(move || work(&jobs)).ok()?;
    Some(sender)
}

fn work(jobs: &Receiver<Job>) {
    // They would stop the program for writing to a terminal that is the command's, or end it for
    // writing more to a file than `ulimit -f` allows. Blocked, they leave an error.
    let _ = SigSet::from_iter([Signal::SIGTTOU, Signal::SIGXFSZ]).thread_block();
    for job in jobs {
        match job {
            Job::Write(text) => {
                let _ = io::stderr().write_all(text.as_bytes());
            }
            Job::Flush(done) => {
                let _ = done.try_send(());
            }
        }
    }
}

/// As `eprintln!`, but never blocks and never fails.
macro_rules! tell {
    ($($arg:tt)*) => { $crate::stderr::line(&format!($($arg)*)) };
}
pub(crate) use tell;
