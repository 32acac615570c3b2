//! Polls the cluster once a second.

use super::state::State;
use crate::commands::ls;
use crate::commands::status::Cluster;
use crate::exit::Problem;
use crate::http::Http;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const EVERY: Duration = Duration::from_secs(1);

/// Locks fetched: the first ones in order of their names.
const LOCKS_MAX: usize = 5_000;

/// Runs until the receiver is gone.
pub(super) fn poll(http: &Http, prefix: &str, told: &SyncSender<State>) {
    let http = http.clone().with_short_timeout();
    let mut before: Option<(Instant, u64)> = None;
    let mut last = State::default();
    loop {
        let begun = Instant::now();
        match ask(&http, prefix) {
            Ok((cluster, (locks, more), grants)) => {
                let rate = before.zip(grants).and_then(|((then, before), now)| {
                    // The counter starts at zero again after a restart.
                    let more = now.checked_sub(before)?;
                    Some(more as f64 / then.elapsed().as_secs_f64().max(0.001))
                });
                before = grants.map(|grants| (Instant::now(), grants));
                last =
                    State { trouble: None, grants_per_second: rate, ..State::of(&cluster, &locks) };
                last.more = more;
            }
            // The last known state is still shown.
            Err(problem) => last.trouble = Some(problem.message),
        }
        last.wall_ms = wall_ms();
        if told.send(last.clone()).is_err() {
            return;
        }
        std::thread::sleep(EVERY.saturating_sub(begun.elapsed()));
    }
}

type Asked = (Cluster, (Vec<serde_json::Value>, bool), Option<u64>);

fn ask(http: &Http, prefix: &str) -> Result<Asked, Problem> {
    let cluster = Cluster::ask(http)?;
    let locks = ls::all(http, prefix, LOCKS_MAX)?;
    let metrics = http.text("/metrics").unwrap_or_default();
    Ok((cluster, locks, grants(&metrics)))
}

/// The grants counted by one node: every node counts all of them.
fn grants(metrics: &str) -> Option<u64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix("holdfast_grants_total "))?;
    line.split_whitespace().next()?.parse().ok()
}

fn wall_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::grants;

    #[test]
    fn grants_are_parsed_from_the_metrics() {
        let metrics = "# TYPE holdfast_grants counter\nholdfast_grants_total 42\nother_total 7\n";
        assert_eq!(grants(metrics), Some(42));
        assert_eq!(grants("nothing"), None);
    }
}
