//! `holdfast bench`: how many locks a second a running cluster gives, and how long each takes.

mod report;
mod run;

use crate::duration;
use crate::exit::{Exit, Problem};
use crate::server_flags::ServerFlags;
use crate::table::say;
use clap::Args;
use std::time::Duration;

/// More would measure this machine, not the cluster.
const CLIENTS_MAX: usize = 100_000;

/// Takes and releases locks through the native client: as many at a time as there are clients.
/// Its locks are called bench/...
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Sixteen clients, each with a lock of its own:
    holdfast bench --seconds 2

  All want the same one, and hold it for a millisecond:
    holdfast bench --clients 64 --one --hold 1ms --seconds 2

  A thousand clients over eight connections, for a program that reads:
    holdfast bench --clients 1000 --connections 8 --seconds 2 --json")]
pub(crate) struct Bench {
    /// How many clients run at the same time
    #[arg(long, value_name = "N", default_value_t = 16)]
    clients: usize,
    /// How many connections they share, each with its own session. Default: one each, at most 16
    #[arg(long, value_name = "N")]
    connections: Option<usize>,
    /// Contend for one lock instead of one each
    #[arg(long)]
    one: bool,
    /// How long each lock is held
    #[arg(long, value_name = "DURATION", default_value = "0ms", value_parser = duration::parse)]
    hold: Duration,
    /// Ask for it shared
    #[arg(long, conflicts_with = "permits")]
    shared: bool,
    /// Take one of this many permits
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    permits: Option<u32>,
    /// How long to run
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerFlags,
}

impl Bench {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        let connections = self.connections();
        if self.clients == 0 || self.clients > CLIENTS_MAX {
            return Err(Problem::usage(format!("--clients goes from 1 to {CLIENTS_MAX}")));
        }
        if connections == 0 || connections > self.clients {
            return Err(Problem::usage("--connections goes from 1 to the number of clients"));
        }
        let runtime = crate::serve::runtime()?;
        let ran = runtime.block_on(run::run(&self, connections))?;
        if self.json {
            say(&format!("{}\n", report::json(&self, connections, &ran)))?;
        } else {
            say(&report::text(&self, connections, &ran))?;
        }
        match ran.first_error {
            Some(error) if ran.pairs == 0 => Err(error),
            _ => Ok(Exit::Success),
        }
    }

    fn connections(&self) -> usize {
        self.connections.unwrap_or_else(|| self.clients.min(16))
    }

    fn mode(&self) -> String {
        match (self.shared, self.permits) {
            (true, _) => "shared".to_owned(),
            (false, Some(of)) => format!("permit of {of}"),
            (false, None) => "exclusive".to_owned(),
        }
    }
}
