//! Whether a lock costs more when there are many others, and a hand-off more when the line is long.

use super::crew::{Crew, Recorded, Timed};
use super::{Plan, SETTLE, held, pairs};
use crate::clients::{self, Client, holdfast};
use crate::peers::{Setup, waiters};
use crate::report::{Better, Figure, Row};
use crate::table::counted;
use std::time::{Duration, Instant};

/// Clients that take and release locks beside those that exist.
const CLIENTS: usize = 64;

/// The short line.
const FEW_WAITERS: usize = 10;

/// Sessions of the long line.
const SESSIONS: usize = 100;

/// Waiters of one session that ask at once: fewer than a server lets a session have unanswered.
const AT_ONCE: usize = 50;

/// How long until all of those stand in line, on a busy machine.
const LINE_PATIENCE: Duration = Duration::from_secs(60);

const LOOK_EVERY: Duration = Duration::from_millis(20);

const NAME: &str = "the-one";

/// What is measured one after the other. Each on a runtime of its own: a million locks that are let
/// go would be work beside the next one.
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

/// Pairs beside so many locks that are held.
async fn beside(setup: Setup, plan: &Plan, locks: usize) -> Result<Row, String> {
    let cluster = plan.start(setup).await?;
    let _held = held::hold(&cluster.target, locks).await?;
    let clients = clients::connect(&cluster.target, CLIENTS).await?;
    let recorded = pairs::measure(clients, &cluster, plan).await?;
    let figure = Figure::new("pairs/s", Better::Higher, recorded.per_second());
    Ok(row(setup, counted(locks, "existing lock"), figure, &recorded))
}

/// Hand-offs while so many wait.
async fn in_line(setup: Setup, plan: &Plan, waiters: usize) -> Result<Row, String> {
    let recorded = hand_offs(setup, plan, waiters).await?;
    let figure = Figure::new("hand-offs/s", Better::Higher, recorded.per_second());
    Ok(row(setup, counted(waiters, "waiter"), figure, &recorded))
}

fn row(setup: Setup, with: String, figure: Figure, recorded: &Recorded) -> Row {
    let cpu = Figure::new("server CPU us", Better::Lower, recorded.cpu_us());
    Row::new("growth", setup.name(), with, vec![figure, cpu])
}

/// One line that stays as long as it is: whoever was served stands in it again.
async fn hand_offs(setup: Setup, plan: &Plan, count: usize) -> Result<Recorded, String> {
    let cluster = plan.start(setup).await?;
    let sessions = holdfast::sessions(&cluster.target, SESSIONS.min(count)).await?;
    let mut first = clients::connect(&cluster.target, 1).await?.pop().ok_or("nobody connects")?;
    first.acquire(NAME).await?;
    let mut crew = Crew::default();
    let mut waiting = 0;
    let clients: Vec<Box<dyn Client>> = holdfast::sharing(&sessions, count);
    let mut clients = clients.into_iter().peekable();
    while clients.peek().is_some() {
        for client in clients.by_ref().take(sessions.len() * AT_ONCE) {
            crew.add(client, NAME.to_owned(), Timed::Wait);
            waiting += 1;
        }
        let until = Instant::now() + LINE_PATIENCE;
        while waiters(&cluster.target).await? < waiting {
            if Instant::now() > until {
                return Err(format!("{waiting} clients do not stand in line in time"));
            }
            crew.pass(LOOK_EVERY).await?;
        }
    }
    first.release().await?;
    crew.pass(SETTLE).await?;
    crew.record(plan.seconds, &cluster.pids()).await
}
