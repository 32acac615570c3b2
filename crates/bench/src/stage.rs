//! One part of the run: it has a time limit, can be interrupted, and leaves nothing behind.

use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// How long tasks may take to end when their runtime shuts down.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// This part failed; the next one may work.
    Failed(String),
    /// The user wants the whole run to end.
    Interrupted,
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// Runs one part on its own runtime, so that all its tasks end with it. Servers started by the part
/// end when its future is dropped.
pub(crate) fn stage<T>(
    limit: Duration,
    part: impl Future<Output = Result<T, String>>,
) -> Result<T, Stop> {
    let runtime = Runtime::new().map_err(|error| format!("no threads can be started: {error}"))?;
    let done = runtime.block_on(async {
        tokio::select! {
            done = timeout(limit, part) => done.map_or_else(
                |_| Err(Stop::Failed(format!("not finished within {} s", limit.as_secs()))),
                |done| done.map_err(Stop::Failed),
            ),
            () = interrupted() => Err(Stop::Interrupted),
        }
    });
    runtime.shutdown_timeout(END_TIMEOUT);
    done
}

async fn interrupted() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                terminate.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hanging_stage_is_stopped() {
        let done: Result<(), Stop> = stage(Duration::from_millis(20), std::future::pending());
        assert!(matches!(done, Err(Stop::Failed(why)) if why.contains("not finished")));
    }

    #[test]
    fn results_and_errors_are_returned() {
        let limit = Duration::from_secs(60);
        assert_eq!(stage(limit, async { Ok(7) }), Ok(7));
        let failed: Result<(), Stop> = stage(limit, async { Err("no".to_owned()) });
        assert_eq!(failed, Err(Stop::Failed("no".to_owned())));
    }
}
