//! Very many clients in one line: what a hand-off costs the servers, the network, and the clients
//! whose turn it is not.

use super::workers::{Timed, Workers};
use super::{Plan, SETTLE};
use crate::clients;
use crate::peers::Setup;
use crate::report::{Better, Figure, Row};
use crate::sockets::traffic;
use crate::table::counted;
use std::time::Duration;

/// How long the first holder keeps the lock, so that the others can get in line.
const LINING_UP: Duration = Duration::from_secs(3);

const NAME: &str = "the-one";

pub(super) async fn run(setup: Setup, plan: &Plan) -> Result<Vec<Row>, String> {
    let cluster = plan.start_warm(setup).await?;
    let mut clients = clients::connect(&cluster.target, plan.contenders).await?;
    let mut first = clients.pop().ok_or("--contenders must be at least 1")?;
    first.acquire(NAME).await?;
    let mut workers = Workers::default();
    for client in clients {
        workers.add(client, NAME.to_owned(), Timed::Wait);
    }
    workers.pass(LINING_UP).await?;
    first.release().await?;
    workers.add(first, NAME.to_owned(), Timed::Wait);
    workers.pass(SETTLE).await?;
    let before = traffic(&cluster.target.ports)?;
    let recorded = workers.record(plan.seconds, &cluster.pids()).await?;
    let traffic = traffic(&cluster.target.ports)?.since(before);
    let each = |count: u64| count as f64 / recorded.count().max(1) as f64;
    let figures = vec![
        Figure::new("hand-offs/s", Better::Higher, recorded.per_second()),
        Figure::new("wake-ups/hand-off", Better::Lower, each(traffic.wakeups)),
        Figure::new("bytes to clients/hand-off", Better::Lower, each(traffic.bytes_to_clients)),
        Figure::new("bytes to servers/hand-off", Better::Lower, each(traffic.bytes_to_servers)),
        Figure::new("server CPU us/hand-off", Better::Lower, recorded.cpu_us()),
    ];
    Ok(vec![Row::new("contending", setup.name(), counted(plan.contenders, "client"), figures)])
}
