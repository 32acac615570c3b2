//! Messages on stderr.
//!
//! Stderr may be a full disk, a closed terminal or a pipe that nobody reads. None of that may end
//! the program early or block it while it keeps a lock, so a thread does the writing, and what
//! can't be written is dropped.

use nix::sys::signal::{SigSet, Signal};
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// Messages queued for writing; when the queue is full, further ones are dropped.
const QUEUED_MAX: usize = 256;

/// How long the program waits at its end for queued messages.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

enum Job {
    Write(String),
    /// Replies once everything before it has been written.
    Flush(SyncSender<()>),
}

/// `None` if no thread could be started.
static WRITER: OnceLock<Option<SyncSender<Job>>> = OnceLock::new();

/// Writes a line. Never fails, and blocks only if no thread could be started.
pub(crate) fn line(text: &str) {
    let line = format!("{text}\n");
    match WRITER.get_or_init(start) {
        // If the queue is full, nobody is reading.
        Some(writer) => drop(writer.try_send(Job::Write(line))),
        None => drop(io::stderr().write_all(line.as_bytes())),
    }
}

/// Waits for queued messages, for at most `FLUSH_TIMEOUT`. Call it before the program exits.
pub(crate) fn flush() {
    if let Some(Some(writer)) = WRITER.get() {
        let (done, wait) = sync_channel(1);
        if writer.try_send(Job::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

fn start() -> Option<SyncSender<Job>> {
    let (sender, jobs) = sync_channel(QUEUED_MAX);
    thread::Builder::new().name("stderr".to_owned()).spawn(move || work(&jobs)).ok()?;
    Some(sender)
}

fn work(jobs: &Receiver<Job>) {
    // They would stop the program for writing to a terminal while the command is in the foreground,
    // or kill it for exceeding `ulimit -f`. Blocked, they turn into errors.
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

/// Like `eprintln!`, but never blocks and never fails.
macro_rules! eprint_line {
    ($($arg:tt)*) => { $crate::stderr::line(&format!($($arg)*)) };
}
pub(crate) use eprint_line;
