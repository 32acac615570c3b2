//! Kills the leader under load: for how long can no lock be taken?

use super::{Plan, fresh};
use crate::clients::{self, Client};
use crate::peers::{Cluster, Setup};
use crate::report::{Better, Figure, Row};
use crate::stats::{largest, median};
use crate::table::counted;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Clients that keep taking locks, spread over the nodes.
const CLIENTS: usize = 16;

/// How long they work before the kill.
const BEFORE: Duration = Duration::from_secs(2);

/// How long to watch after the kill: several elections.
const AFTER: Duration = Duration::from_secs(8);

/// How long a client waits for a reply before it tries another lock. Requests that died with the
/// leader are never answered, and must not look like a cluster that grants no locks.
const TRY_FOR: Duration = Duration::from_millis(250);

/// The pause after an error.
const TRY_EVERY: Duration = Duration::from_millis(5);

/// When locks were taken.
type Taken = Arc<Mutex<Vec<Instant>>>;

pub(super) async fn run(setup: Setup, plan: &Plan) -> Result<Vec<Row>, String> {
    let mut cluster = plan.start(setup).await?;
    let mut gaps_ms = Vec::new();
    for _ in 0..plan.kills {
        let gap = one_kill(&mut cluster).await?;
        gaps_ms.push(gap.as_secs_f64() * 1e3);
    }
    let none = "--kills must be at least 1";
    let figures = vec![
        Figure::new("median gap ms", Better::Lower, median(&gaps_ms).ok_or(none)?),
        Figure::new("longest gap ms", Better::Lower, largest(&gaps_ms).ok_or(none)?),
    ];
    Ok(vec![Row::new("gap", setup.name(), counted(plan.kills, "kill"), figures)])
}

async fn one_kill(cluster: &mut Cluster) -> Result<Duration, String> {
    let taken = Taken::default();
    let mut at_work = JoinSet::new();
    let clients = clients::connect(&cluster.target, CLIENTS).await?;
    for client in clients {
        at_work.spawn(work(client, taken.clone()));
    }
    sleep(BEFORE).await;
    let leader = cluster.leader().await?;
    let killed = Instant::now();
    cluster.kill(leader);
    sleep(AFTER).await;
    at_work.shutdown().await;
    cluster.start_again(leader).await?;
    let mut taken = std::mem::take(&mut *taken.lock().unwrap_or_else(PoisonError::into_inner));
    taken.sort_unstable();
    longest_gap(&taken, killed, killed + AFTER).ok_or_else(|| {
        let name = cluster.target.setup.name();
        format!("{name}: no lock was taken within {} s after the kill", AFTER.as_secs())
    })
}

/// The longest time without a lock taken, from the last lock before `from` to the last one before
/// `until`. `None` if no lock was taken before `from`, or none after it.
fn longest_gap(taken: &[Instant], from: Instant, until: Instant) -> Option<Duration> {
    let before = taken.iter().rev().find(|at| **at <= from)?;
    let after = taken.iter().filter(|at| **at > from && **at <= until);
    let mut last = *before;
    let mut longest = None;
    for at in after {
        longest = longest.max(Some(*at - last));
        last = *at;
    }
    longest
}

/// Takes and releases locks, each time another one, until it is aborted.
async fn work(mut client: Box<dyn Client>, taken: Taken) {
    loop {
        let name = format!("gap-{}", fresh());
        let acquired = timeout(TRY_FOR, client.acquire(&name)).await;
        if let Ok(Ok(())) = acquired {
            taken.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
            // If this fails, the lock stays held; nobody wants it again.
            let _ = timeout(TRY_FOR, client.release()).await;
        } else {
            sleep(TRY_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_is_the_longest_pause_around_the_kill() {
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let taken = [at(0), at(90), at(110), at(700), at(720)];
        let gap = longest_gap(&taken, at(100), at(1000));
        assert_eq!(gap, Some(Duration::from_millis(590)));
    }

    #[test]
    fn no_gap_without_a_lock_before_and_after() {
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        assert_eq!(longest_gap(&[at(50)], at(100), at(1000)), None);
        assert_eq!(longest_gap(&[at(500)], at(100), at(1000)), None);
        assert_eq!(longest_gap(&[at(50), at(2000)], at(100), at(1000)), None);
    }
}
