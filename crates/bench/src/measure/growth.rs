//! Whether a lock costs more when there are many others, and a hand-off more when the line is long.

use super::workers::{Recorded, Timed, Workers};
use super::{Plan, SETTLE, held, pairs};
use crate::clients::{self, Client, holdfast};
use crate::peers::{Setup, waiters};
use crate::report::{Better, Figure, Row};
use crate::table::counted;
use std::time::{Duration, Instant};

/// Clients that take and release locks next to the existing ones.
const CLIENTS: usize = 64;

/// The length of the short line.
const FEW_WAITERS: usize = 10;

/// Sessions for the long line.
const SESSIONS: usize = 100;

/// How many waiters of one session send at a time: fewer than a server allows unanswered requests.
const AT_ONCE: usize = 50;

/// How long it may take until all of them are in line, on a busy machine.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);

const LOOK_EVERY: Duration = Duration::from_millis(20);

const NAME: &str = "the-one";

/// What is measured one after the other, each step on its own runtime: releasing a million locks
/// would disturb the next one.
pub(super) const STEPS: usize = 4;

pub(super) async fn run(setup: Setup, plan: &Plan, step: usize) -> Result<Vec<Row>, String> {
    let row = match step {
        0 => beside(setup, plan, 1).await?,
        1 => beside(setup, plan, plan.existing_locks).await?,
        2 => in_line(setup, plan, FEW_WAITERS).await?,
        _ => in_line(setup, plan, plan.waiters).await?,
    };
    Ok(vec![row])
}

/// Pairs while `locks` other locks are held.
async fn beside(setup: Setup, plan: &Plan, locks: usize) -> Result<Row, String> {
    let cluster = plan.start(setup).await?;
    let _held = held::hold(&cluster.target, locks).await?;
    let clients = clients::connect(&cluster.target, CLIENTS).await?;
    let recorded = pairs::measure(clients, &cluster, plan).await?;
    let figure = Figure::new("pairs/s", Better::Higher, recorded.per_second());
    Ok(row(setup, counted(locks, "existing lock"), figure, &recorded))
}

/// Hand-offs while `waiters` clients are waiting.
async fn in_line(setup: Setup, plan: &Plan, waiters: usize) -> Result<Row, String> {
    let recorded = hand_offs(setup, plan, waiters).await?;
    let figure = Figure::new("hand-offs/s", Better::Higher, recorded.per_second());
    Ok(row(setup, counted(waiters, "waiter"), figure, &recorded))
}

fn row(setup: Setup, with: String, figure: Figure, recorded: &Recorded) -> Row {
    let cpu = Figure::new("server CPU us", Better::Lower, recorded.cpu_us());
    Row::new("growth", setup.name(), with, vec![figure, cpu])
}

/// One line whose length stays the same: each client gets in line again after its turn.
async fn hand_offs(setup: Setup, plan: &Plan, count: usize) -> Result<Recorded, String> {
    let cluster = plan.start(setup).await?;
    let sessions = holdfast::sessions(&cluster.target, SESSIONS.min(count)).await?;
    let mut first = clients::connect(&cluster.target, 1).await?.pop().ok_or("nobody connects")?;
    first.acquire(NAME).await?;
    let mut workers = Workers::default();
    let mut waiting = 0;
    let clients: Vec<Box<dyn Client>> = holdfast::sharing(&sessions, count);
    let mut clients = clients.into_iter().peekable();
    while clients.peek().is_some() {
        for client in clients.by_ref().take(sessions.len() * AT_ONCE) {
            workers.add(client, NAME.to_owned(), Timed::Wait);
            waiting += 1;
        }
        let until = Instant::now() + LINE_TIMEOUT;
        while waiters(&cluster.target).await? < waiting {
            if Instant::now() > until {
                return Err(format!("{waiting} clients did not join the line in time"));
            }
            workers.pass(LOOK_EVERY).await?;
        }
    }
    first.release().await?;
    workers.pass(SETTLE).await?;
    workers.record(plan.seconds, &cluster.pids()).await
}
