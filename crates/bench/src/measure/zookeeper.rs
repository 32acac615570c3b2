//! The ZooKeeper door next to ZooKeeper: the same client with the same recipe at both, without
//! contention and with 16 clients looping on one lock.

use super::workers::{Recorded, Timed, Workers};
use super::{Plan, SETTLE, WARM_UP_CLIENTS, looping, pairs};
use crate::clients::Client;
use crate::clients::zookeeper::ZooKeeper;
use crate::peers::{Cluster, Setup, Target};
use crate::report::{Better, Figure, Row};
use crate::table::counted;
use std::time::Duration;

/// Holdfast's ZooKeeper port is this far above its HTTP port.
const DOOR_ABOVE: u16 = 2;

pub(super) async fn run(setup: Setup, plan: &Plan) -> Result<Vec<Row>, String> {
    let cluster = plan.start(setup).await?;
    let door = door(&cluster);
    if !plan.warm_up.is_zero() {
        pairs::work(connect(&door, WARM_UP_CLIENTS).await?).pass(plan.warm_up).await?;
    }
    let mut rows = Vec::new();
    for count in plan.clients.iter().copied() {
        let clients = connect(&door, count).await?;
        let recorded = pairs::measure(clients, &cluster, plan).await?;
        let with = format!("lock pairs, {}", counted(count, "client"));
        rows.push(Row::new("zookeeper", setup.name(), with, figures(&recorded)?));
    }
    let mut workers = Workers::default();
    for client in connect(&door, looping::CLIENTS).await? {
        workers.add(client, "the-one".to_owned(), Timed::Wait);
    }
    workers.pass(SETTLE).await?;
    let recorded = workers.record(plan.seconds, &cluster.pids()).await?;
    let with = format!("hand-offs, {}", counted(looping::CLIENTS, "client"));
    rows.push(Row::new("zookeeper", setup.name(), with, figures(&recorded)?));
    Ok(rows)
}

/// The ports that speak ZooKeeper's protocol.
fn door(cluster: &Cluster) -> Target {
    let mut target = cluster.target.clone();
    if target.setup.is_holdfast() {
        target.ports.iter_mut().for_each(|port| *port += DOOR_ABOVE);
    }
    target
}

/// Connects `count` clients, spread over the nodes.
async fn connect(door: &Target, count: usize) -> Result<Vec<Box<dyn Client>>, String> {
    let mut clients: Vec<Box<dyn Client>> = Vec::with_capacity(count);
    for number in 0..count {
        clients.push(Box::new(ZooKeeper::connect(&door.ports_from(number)).await?));
    }
    Ok(clients)
}

fn figures(recorded: &Recorded) -> Result<Vec<Figure>, String> {
    Ok(vec![
        Figure::new("per second", Better::Higher, recorded.per_second()),
        Figure::new("p50 ms", Better::Lower, recorded.percentile(0.5)?),
        Figure::new("p99 ms", Better::Lower, recorded.percentile(0.99)?),
        Figure::new("server CPU us each", Better::Lower, recorded.cpu_us()),
    ])
}

/// How long all of it may take: clients reconnect for each number of clients, and to loop.
pub(super) fn limit(plan: &Plan) -> Duration {
    (SETTLE + plan.seconds + Duration::from_secs(30)) * (1 + plan.clients.len() as u32)
}
