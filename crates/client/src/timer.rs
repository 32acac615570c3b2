//! Timers of the client's own threads (`runtime.rs`): so its futures may be polled wherever the program
//! likes, also where no timers run.

use crate::runtime;
use std::time::Duration;
use tokio::time::{Instant, Sleep, Timeout};

/// Makes a timer. Only what makes it needs the runtime, not what polls it.
fn within_runtime<T>(make: impl FnOnce() -> T) -> T {
    // It runs since the client was connected.
    let _entered = runtime::runtime().ok().map(tokio::runtime::Runtime::enter);
    make()
}

pub(crate) fn sleep(duration: Duration) -> Sleep {
    within_runtime(|| tokio::time::sleep(duration))
}

pub(crate) fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    within_runtime(|| tokio::time::timeout(duration, future))
}

pub(crate) fn timeout_at<F: Future>(deadline: Instant, future: F) -> Timeout<F> {
    within_runtime(|| tokio::time::timeout_at(deadline, future))
}
