//! The load itself.

use super::Bench;
use crate::exit::Problem;
use crate::server_flags::{own_label, problem};
use hdrhistogram::Histogram;
use holdfast_client::{Client, Error};
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The load generator's session TTL.
const TTL: Duration = Duration::from_secs(15);

/// Pause after an error.
const PAUSE: Duration = Duration::from_millis(100);

/// How long the last replies may take after the run ends.
const LAST_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a session may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The result of a run.
pub(super) struct BenchResult {
    pub(super) pairs: u64,
    pub(super) errors: u64,
    pub(super) first_error: Option<Problem>,
    pub(super) took: Duration,
    /// In microseconds.
    pub(super) acquire: Histogram<u64>,
    pub(super) release: Histogram<u64>,
}

/// Longer times are recorded as this: no acquire should take an hour.
const LONGEST_US: u64 = 3_600_000_000;

impl BenchResult {
    fn new() -> Result<Self, Problem> {
        let times = || Histogram::new_with_bounds(1, LONGEST_US, 3).map_err(|e| e.to_string());
        Ok(Self {
            pairs: 0,
            errors: 0,
            first_error: None,
            took: Duration::ZERO,
            acquire: times()?,
            release: times()?,
        })
    }

    fn failed(&mut self, error: Error) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| problem(error));
    }
}

/// Shared by all clients.
type Book = Arc<Mutex<BenchResult>>;

fn open(book: &Book) -> MutexGuard<'_, BenchResult> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) async fn run(bench: &Bench, connections: usize) -> Result<BenchResult, Problem> {
    let mut clients = Vec::new();
    for _ in 0..connections {
        clients.push(bench.server.client(TTL, &own_label()).await?);
    }
    let book: Book = Arc::new(Mutex::new(BenchResult::new()?));
    let begun = Instant::now();
    let until = begun + Duration::from_secs(bench.seconds);
    let mut tasks = JoinSet::new();
    for number in 0..bench.clients {
        let client = clients.get(number % connections).cloned();
        let Some(client) = client else { continue };
        let one =
            BenchClient { name: name(bench, number), mode: mode(bench), hold: bench.hold, until };
        tasks.spawn(one.run(client, book.clone()));
    }
    let progress = tokio::spawn(show_progress(book.clone(), until));
    while tasks.join_next().await.is_some() {}
    let took = begun.elapsed();
    progress.abort();
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    for client in clients {
        let _ = timeout(CLOSE_TIMEOUT, client.close()).await;
    }
    let ran = std::mem::replace(&mut *open(&book), BenchResult::new()?);
    Ok(BenchResult { took, ..ran })
}

/// Includes this process's label, so that two benchmarks don't contend for the same locks.
fn name(bench: &Bench, number: usize) -> String {
    let this = own_label();
    if bench.one { format!("bench/{this}/one") } else { format!("bench/{this}/{number}") }
}

#[derive(Debug, Clone, Copy)]
enum Mode {
    Exclusive,
    Shared,
    Permit(u32),
}

fn mode(bench: &Bench) -> Mode {
    match (bench.shared, bench.permits) {
        (true, _) => Mode::Shared,
        (false, Some(of)) => Mode::Permit(of),
        (false, None) => Mode::Exclusive,
    }
}

/// One client of the load.
struct BenchClient {
    name: String,
    mode: Mode,
    hold: Duration,
    until: Instant,
}

impl BenchClient {
    async fn run(self, client: Client, book: Book) {
        while Instant::now() < self.until {
            let asked = Instant::now();
            let lock = match self.mode {
                Mode::Exclusive => client.lock(&self.name),
                Mode::Shared => client.lock(&self.name).shared(),
                Mode::Permit(of) => client.lock(&self.name).permit_of(of),
            };
            let left = self.until.saturating_duration_since(asked) + LAST_TIMEOUT;
            let guard = match timeout(left, lock.acquire()).await {
                Ok(Ok(guard)) => guard,
                Ok(Err(error)) => {
                    open(&book).failed(error);
                    sleep(PAUSE).await;
                    continue;
                }
                Err(_) => return open(&book).failed(no_answer()),
            };
            open(&book).acquire.saturating_record(micros(asked));
            if !self.hold.is_zero() {
                sleep(self.hold).await;
            }
            let letting_go = Instant::now();
            let released = timeout(LAST_TIMEOUT, guard.release()).await;
            let mut book = open(&book);
            match released {
                Ok(Ok(())) => {
                    book.release.saturating_record(micros(letting_go));
                    book.pairs += 1;
                }
                Ok(Err(error)) => book.failed(error),
                Err(_) => book.failed(no_answer()),
            }
        }
    }
}

fn no_answer() -> Error {
    Error::Unreachable("no answer in time".to_owned())
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// A progress line that updates every second, if stderr is a terminal.
async fn show_progress(book: Book, until: Instant) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let mut before = 0;
    loop {
        sleep(Duration::from_secs(1)).await;
        let now = open(&book).pairs;
        let left = until.saturating_duration_since(Instant::now()).as_secs();
        let line = format!("\r\x1b[K{now} pairs, {} a second, {left} s to go", now - before);
        // Nobody is watching if the terminal was closed.
        let _ = std::io::stderr().write_all(line.as_bytes());
        before = now;
    }
}
