//! `ticketing test`: starts instances as processes of their own, buys tickets from them, and stops and
//! kills them on the way. Afterwards no ticket was sold twice, and nobody paid without a ticket.

mod cluster;
mod controls;
mod crowd;
mod failures;
mod purchases;
pub mod shop;

pub(crate) use cluster::Node;

use crate::settings::LockType;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use shop::{Client, Plan, Shop};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Start instances, buy tickets from them, and stop and kill them on the way
#[derive(Args, Debug, Clone)]
pub(crate) struct Test {
    /// Only scenarios whose name contains one of these
    scenarios: Vec<String>,
    /// A service that runs already: makes a successful and a failed purchase there, and nothing else
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Which lock protects a ticket
    #[arg(long, env = "LOCK_TYPE", default_value = "distributed_lock", value_enum)]
    lock_type: LockType,
    /// The lock service. Default: a Holdfast embedded in the first instance
    #[arg(
        long,
        env = "LOCK_URL",
        default_value = "",
        hide_default_value = true,
        hide_env_values = true
    )]
    lock_url: String,
    /// A PostgreSQL server; each scenario creates a database there and drops it. Default: SQLite
    #[arg(
        long,
        env = "DATABASE_URL",
        default_value = "",
        hide_default_value = true,
        hide_env_values = true
    )]
    database_url: String,
    /// How many buyers come in the last scenario
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    buyers: u32,
    /// How many tickets they compete for
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    tickets: u32,
}

/// What went wrong in a scenario.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Something that happens at a shop, and how it must end.
struct Scenario {
    name: &'static str,
    run: fn(&Bench) -> Result<String, Failure>,
    /// Whether it makes sense for this lock type.
    fits: fn(LockType) -> bool,
}

/// What scenarios need.
struct Bench {
    plan: Plan,
    lock_type: LockType,
    buyers: u32,
    tickets: u32,
    progress: ProgressBar,
}

impl Bench {
    fn shop(&self) -> Result<Shop, Failure> {
        Shop::open(self.plan.clone())
    }
}

fn has_locks(lock_type: LockType) -> bool {
    !lock_type.schemes().is_empty()
}

const SCENARIOS: &[Scenario] = &[
    Scenario { name: "successful transaction", run: purchases::successful, fits: has_locks },
    Scenario { name: "failed transaction", run: purchases::failed, fits: has_locks },
    Scenario { name: "two buyers, one ticket", run: purchases::one_ticket, fits: has_locks },
    Scenario { name: "two buyers, two tickets", run: purchases::two_tickets, fits: has_locks },
    Scenario { name: "the payment is declined", run: purchases::declined, fits: has_locks },
    Scenario { name: "the buyer walks away", run: failures::walks_away, fits: has_locks },
    Scenario { name: "crash between reserve and book", run: failures::crash, fits: has_locks },
    Scenario { name: "paused past the lease", run: failures::pause, fits: has_locks },
    Scenario {
        name: "the lock cluster's leader is killed",
        run: cluster::leader_killed,
        fits: |lock_type| lock_type.door().is_some(),
    },
    Scenario { name: "a crowd", run: crowd::crowd, fits: has_locks },
    Scenario {
        name: "without locks a seat is sold twice",
        run: controls::sold_twice,
        fits: |lock_type| lock_type == LockType::None,
    },
    Scenario {
        name: "a row lock without an end gets stuck",
        run: controls::stuck,
        fits: |lock_type| lock_type == LockType::RowLock,
    },
];

impl Test {
    pub(crate) fn run(self) -> Result<(), String> {
        if let Some(url) = &self.url {
            let client = Client::new(url);
            let done = purchases::at_running(&client).map_err(|error| error.to_string())?;
            println!("ok      {done}");
            return Ok(());
        }
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let bar = ProgressStyle::with_template("{msg:40} [{bar:30}] {pos}/{len}");
        let bar = bar.map_err(|error| error.to_string())?;
        let mut failed = Vec::new();
        let mut passed = 0;
        for Scenario { name, run, fits } in SCENARIOS {
            let named = self.scenarios.is_empty()
                || self.scenarios.iter().any(|wanted| name.contains(wanted.as_str()));
            if !named || !fits(self.lock_type) {
                continue;
            }
            let progress = ProgressBar::new_spinner().with_style(bar.clone()).with_message(*name);
            progress.enable_steady_tick(Duration::from_millis(200));
            let started = Instant::now();
            let done = run(&self.bench(program.clone(), progress.clone()));
            progress.finish_and_clear();
            let seconds = started.elapsed().as_secs_f32();
            match done {
                Ok(done) => {
                    passed += 1;
                    println!("ok      {name}: {done} ({seconds:.1}s)");
                }
                Err(why) => {
                    failed.push(*name);
                    println!("FAILED  {name}: {why} ({seconds:.1}s)");
                }
            }
        }
        println!(
            "{} on {}: {passed} passed, {} failed",
            self.lock_type,
            self.database(),
            failed.len()
        );
        match (passed, failed.is_empty()) {
            (0, true) => Err("no scenario has such a name".to_owned()),
            (_, true) => Ok(()),
            _ => Err(format!("failed: {}", failed.join(", "))),
        }
    }

    fn database(&self) -> &'static str {
        if self.database_url.is_empty() { "SQLite" } else { "PostgreSQL" }
    }

    fn bench(&self, program: PathBuf, progress: ProgressBar) -> Bench {
        let plan = Plan {
            program,
            lock_type: self.lock_type.to_string(),
            lock_url: (!self.lock_url.is_empty()).then(|| self.lock_url.clone()),
            postgres_url: (!self.database_url.is_empty()).then(|| self.database_url.clone()),
        };
        let Self { buyers, tickets, .. } = *self;
        Bench { plan, lock_type: self.lock_type, buyers, tickets, progress }
    }
}
