//! Timers on the client's own threads (`runtime.rs`), so that the client's futures can be polled on
//! any executor, even one without timers.

use crate::runtime;
use std::time::Duration;
use tokio::time::{Instant, Sleep, Timeout};

/// Creates a timer. Only creating it needs the runtime, not polling it.
fn within_runtime<T>(make: impl FnOnce() -> T) -> T {
    // It has been running since the client was connected.
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
