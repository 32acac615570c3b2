//! Acquire and release without contention: each client uses its own lock.

use super::workers::{Recorded, Timed, Workers};
use super::{Plan, SETTLE, fresh};
use crate::clients::{self, Client};
use crate::peers::{Cluster, Setup};
use crate::report::{Better, Figure, Row};
use crate::table::counted;

pub(super) async fn run(setup: Setup, plan: &Plan) -> Result<Vec<Row>, String> {
    let cluster = plan.start_warm(setup).await?;
    let mut rows = Vec::new();
    for count in plan.clients.iter().copied() {
        let clients = clients::connect(&cluster.target, count).await?;
        let recorded = measure(clients, &cluster, plan).await?;
        let with = counted(count, "client");
        rows.push(Row::new("pairs", setup.name(), with.clone(), figures(&recorded)?));
        if setup.is_holdfast() && plan.connections > 0 && count > plan.connections {
            let clients = clients::sharing(&cluster.target, plan.connections, count).await?;
            let recorded = measure(clients, &cluster, plan).await?;
            let name = format!("{}, {} connections", setup.name(), plan.connections);
            rows.push(Row::new("pairs", &name, with, figures(&recorded)?));
        }
    }
    Ok(rows)
}

pub(super) async fn measure(
    clients: Vec<Box<dyn Client>>,
    cluster: &Cluster,
    plan: &Plan,
) -> Result<Recorded, String> {
    let mut workers = work(clients);
    workers.pass(SETTLE).await?;
    workers.record(plan.seconds, &cluster.pids()).await?.all_worked()
}

/// Puts each of them to work on its own lock.
pub(super) fn work(clients: Vec<Box<dyn Client>>) -> Workers {
    let mut workers = Workers::default();
    for client in clients {
        workers.add(client, format!("own-{}", fresh()), Timed::Pair);
    }
    workers
}

fn figures(recorded: &Recorded) -> Result<Vec<Figure>, String> {
    Ok(vec![
        Figure::new("pairs/s", Better::Higher, recorded.per_second()),
        Figure::new("p50 ms", Better::Lower, recorded.percentile(0.5)?),
        Figure::new("p99 ms", Better::Lower, recorded.percentile(0.99)?),
        Figure::new("server CPU us/pair", Better::Lower, recorded.cpu_us()),
    ])
}
