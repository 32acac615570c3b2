//! What it costs to merely hold locks.

use super::Plan;
use crate::clients::holdfast::sessions;
use crate::peers::{Cluster, Setup, Target};
use crate::procfs;
use crate::report::{Better, Figure, Row};
use crate::table::counted;
use holdfast_client::{Client, Guard};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Sessions that hold the locks; more if one would have to hold too many.
const SESSIONS: usize = 100;

/// The most locks that one session holds.
const LOCKS_PER_SESSION_MAX: usize = 5_000;

/// How many requests of one session are in flight while the locks are taken.
const AT_ONCE: usize = 16;

/// How long the servers get to calm down before they are measured.
const CALM: Duration = Duration::from_secs(3);

/// Idle servers use so little CPU that it takes longer to measure: the kernel counts in steps of 10
/// ms.
pub(super) const CPU_LONGER: u32 = 4;

pub(super) async fn run(setup: Setup, plan: &Plan) -> Result<Vec<Row>, String> {
    let cluster = plan.start(setup).await?;
    let pids = cluster.pids();
    sleep(CALM).await;
    let empty = procfs::resident(&pids)?;
    let empty_cpu = cpu_percent(&cluster, plan.seconds * CPU_LONGER).await?;
    let _held = hold(&cluster.target, plan.held_locks).await?;
    sleep(CALM).await;
    let full = procfs::resident(&pids)?;
    let full_cpu = cpu_percent(&cluster, plan.seconds * CPU_LONGER).await?;
    let nodes = pids.len() as f64;
    let each = full.saturating_sub(empty) as f64 / plan.held_locks.max(1) as f64 / nodes;
    let figures = vec![
        Figure::new("empty MB/node", Better::Lower, empty as f64 / 1e6 / nodes),
        Figure::new("full MB/node", Better::Lower, full as f64 / 1e6 / nodes),
        Figure::new("bytes/lock/node", Better::Lower, each),
        Figure::new("empty CPU %", Better::Lower, empty_cpu),
        Figure::new("full CPU %", Better::Lower, full_cpu),
    ];
    Ok(vec![Row::new("held", setup.name(), counted(plan.held_locks, "lock"), figures)])
}

/// CPU use of all nodes together, in percent of one core.
async fn cpu_percent(cluster: &Cluster, time: Duration) -> Result<f64, String> {
    let pids = cluster.pids();
    let (before, begun) = (procfs::cpu(&pids)?, Instant::now());
    sleep(time).await;
    let used = procfs::cpu(&pids)?.saturating_sub(before);
    Ok(100.0 * used.as_secs_f64() / begun.elapsed().as_secs_f64())
}

/// Locks that are held as long as this exists.
pub(super) struct Held {
    _guards: Vec<Guard>,
    _sessions: Vec<Client>,
}

/// Takes `locks` locks and keeps them.
pub(super) async fn hold(target: &Target, locks: usize) -> Result<Held, String> {
    let count = SESSIONS.max(locks.div_ceil(LOCKS_PER_SESSION_MAX)).min(locks.max(1));
    let sessions = sessions(target, count).await?;
    let mut taking = JoinSet::new();
    // Each part takes every `parts`-th lock, so that together they take all of them.
    let parts = count * AT_ONCE;
    for part in 0..parts {
        let Some(session) = sessions.get(part % count).cloned() else { continue };
        taking.spawn(async move {
            let mut guards = Vec::new();
            for lock in (part..locks).step_by(parts) {
                let guard = session.lock(format!("held-{lock}")).acquire().await;
                guards.push(guard.map_err(|error| format!("lock {lock}: {error}"))?);
            }
            Ok::<_, String>(guards)
        });
    }
    let mut guards = Vec::with_capacity(locks);
    while let Some(taken) = taking.join_next().await {
        guards.extend(taken.map_err(|error| format!("a client failed: {error}"))??);
    }
    Ok(Held { _guards: guards, _sessions: sessions })
}
