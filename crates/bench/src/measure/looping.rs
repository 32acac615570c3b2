//! A few clients that all want the same lock, over and over.

use super::workers::{Timed, Workers};
use super::{Plan, SETTLE};
use crate::clients;
use crate::peers::Setup;
use crate::report::{Better, Figure, Row};
use crate::table::counted;

pub(super) const CLIENTS: usize = 16;

pub(super) async fn run(setup: Setup, plan: &Plan) -> Result<Vec<Row>, String> {
    let cluster = plan.start_warm(setup).await?;
    let mut workers = Workers::default();
    for client in clients::connect(&cluster.target, CLIENTS).await? {
        workers.add(client, "the-one".to_owned(), Timed::Wait);
    }
    workers.pass(SETTLE).await?;
    let recorded = workers.record(plan.seconds, &cluster.pids()).await?;
    let figures = vec![
        Figure::new("hand-offs/s", Better::Higher, recorded.per_second()),
        Figure::new("wait p50 ms", Better::Lower, recorded.percentile(0.5)?),
        Figure::new("wait p99 ms", Better::Lower, recorded.percentile(0.99)?),
        Figure::new("server CPU us/hand-off", Better::Lower, recorded.cpu_us()),
    ];
    Ok(vec![Row::new("looping", setup.name(), counted(CLIENTS, "client"), figures)])
}
