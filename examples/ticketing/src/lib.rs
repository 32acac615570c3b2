//! A ticket shop that sells no seat twice, however many instances it runs on and whatever becomes of
//! them.
//!
//! The story of one purchase: a client asks the API (`api.rs`) for a seat. The box office
//! (`box_office.rs`) takes the seat's lock (`seat_locks.rs`), and writes the reservation into the
//! ticket's row (`store/`) together with the lock's lease. Any instance can then book (`booking.rs`): it sees
//! that the lock lives, has the payment authorised (`payment.rs`), and writes the sale in a transaction that shows
//! the lock's token to the fence. What a ticket can be and who may do what is decided in `domain.rs`,
//! which knows nothing of the rest.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

mod api;
mod booking;
mod box_office;
mod connections;
mod domain;
mod embedded;
mod instances;
mod line;
mod live;
mod payment;
mod seat_locks;
mod serve;
mod settings;
mod store;
pub mod tester;

use clap::{Parser, Subcommand};
use settings::{Database, Serve};
use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;
use store::Store;
use tracing_subscriber::EnvFilter;

/// Sell tickets without selling one twice
///
/// Without a command, serves the page and the API at http://localhost:6005. Everything is inside:
/// database, locks, page. LOCK_URL and DATABASE_URL name real ones instead.
#[derive(Parser, Debug)]
#[command(name = "ticketing", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Delete all tickets and sales, and make new tickets
    Init(Init),
    /// Start instances, buy tickets from them, and stop and kill them on the way
    Test(tester::Test),
    /// A node of a Holdfast cluster, for the tests
    #[command(hide = true)]
    Node(tester::Node),
}

#[derive(clap::Args, Debug)]
struct Init {
    #[command(flatten)]
    database: Database,
    /// How many tickets there will be
    #[arg(long, env = "TOTAL_TICKETS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    tickets: u32,
    /// Don't ask
    #[arg(long)]
    yes: bool,
}

/// Runs the program.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_env("TICKETING_LOG");
    tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| EnvFilter::new("ticketing=info,warn")))
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
    let ended = match cli.command {
        Some(Command::Test(test)) => test.run(),
        command => block_on(async {
            match command {
                Some(Command::Init(init)) => init.run().await,
                Some(Command::Node(node)) => node.run().await,
                _ => serve::serve(cli.serve).await,
            }
        }),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn block_on(work: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    let ended = runtime.block_on(work);
    runtime.shutdown_background();
    ended
}

impl Init {
    async fn run(self) -> Result<(), String> {
        let failed = |error: store::StoreError| error.to_string();
        let url = self.database.url();
        Store::check_url(&url)?;
        // Asks before anything is made: whoever says no finds everything as it was.
        if !self.yes
            && let Some((tickets, sales)) = Store::contents(&url).await.map_err(failed)?
            && !confirmed(tickets, sales)?
        {
            return Err("nothing was changed".to_owned());
        }
        let store = Store::open(&url, self.tickets).await.map_err(failed)?;
        store.recreate(self.tickets).await.map_err(failed)?;
        println!("{} tickets, none of them sold", self.tickets);
        Ok(())
    }
}

fn confirmed(tickets: i64, sales: i64) -> Result<bool, String> {
    if !std::io::stdin().is_terminal() {
        return Err(format!(
            "this deletes {tickets} tickets and {sales} sales, and there is nobody to ask: add --yes"
        ));
    }
    print!("This deletes {tickets} tickets and {sales} sales. Go on? [y/N] ");
    let _ = std::io::stdout().flush();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|error| error.to_string())?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// 128 random bits.
fn random_hex() -> String {
    random_bytes::<16>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A random number from 0 to just below 1.
fn random_share() -> f64 {
    f64::from(u32::from_le_bytes(random_bytes())) / (f64::from(u32::MAX) + 1.0)
}

fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes
}
