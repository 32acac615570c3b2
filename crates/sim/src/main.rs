//! The simulator: whole Holdfast clusters in one thread, from one seed.
//!
//! Every node runs the code that production runs. Time, network, disks and clients are virtual;
//! the same seed gives the same run, bit for bit.

mod checks;
mod client;
mod door;
mod faults;
mod flip;
mod host;
mod network;
mod raw;
mod redis;
mod rng;
mod trace;
mod world;
mod zookeeper;

use clap::Parser;
use faults::Tally;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use world::{Plan, RunReport, run};

/// A run is millions of small allocations: this one makes it a quarter cheaper.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Whole Holdfast clusters in one thread, from one seed
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  sim --seed 7            one run; on a violation its last events in words
  sim --seeds 0..500      many runs; 500 is not included
  sim --seeds 0..500 --json
  sim --seeds 1000..100000 --minutes 20")]
struct Args {
    /// One seed
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Many seeds, as A..B; B is not included
    #[arg(long, value_parser = seeds)]
    seeds: Option<(u64, u64)>,
    /// Stop after so many minutes, however many seeds are left
    #[arg(long)]
    minutes: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn seeds(text: &str) -> Result<(u64, u64), String> {
    let wrong = || format!("{text} is no range of seeds: write 0..500");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let (from, to) = (from.parse().map_err(|_| wrong())?, to.parse().map_err(|_| wrong())?);
    if from < to { Ok((from, to)) } else { Err(wrong()) }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let (from, to) = args.seeds.unwrap_or_else(|| {
        let seed = args.seed.unwrap_or(0);
        (seed, seed + 1)
    });
    let minutes = args.minutes.map(|minutes| Duration::from_secs(minutes * 60));
    let total = run_all(from, to, minutes, !args.json && to - from > 1);
    total.print(args.json);
    if total.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs all seeds, as many at a time as there are cores.
fn run_all(from: u64, to: u64, within: Option<Duration>, progress: bool) -> Total {
    let next = AtomicU64::new(from);
    let total = Mutex::new(Total::default());
    let begun = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let in_time = || within.is_none_or(|within| begun.elapsed() < within);
    let work = || {
        while in_time() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= to {
                return;
            }
            let outcome = run(Plan { seed, ..Plan::default() });
            if outcome.violation.is_some() {
                explain(seed);
            }
            let Ok(mut total) = total.lock() else { return };
            total.add(seed, &outcome);
            if progress {
                total.show_progress(to - from, begun.elapsed());
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.min((to - from) as usize) {
            scope.spawn(work);
        }
    });
    total.into_inner().unwrap_or_default()
}

/// Runs a seed again and tells its last events.
fn explain(seed: u64) {
    let outcome = run(Plan { seed, wordy: true });
    let violation = outcome.violation.unwrap_or_default();
    let lines: String = outcome.trace.lines().map(|line| format!("  {line}\n")).collect();
    eprintln!(
        "\nseed {seed}: {violation}\n{lines}again: cargo run --release -p sim -- --seed {seed}"
    );
}

#[derive(Default)]
struct Total {
    seeds: u64,
    operations: u64,
    simulated_us: u64,
    faults: Tally,
    violations: Vec<(u64, String)>,
    /// Of all runs together, in whatever order they ended.
    hash: u64,
}

impl Total {
    fn add(&mut self, seed: u64, outcome: &RunReport) {
        self.seeds += 1;
        self.operations += outcome.operations;
        self.simulated_us += outcome.simulated_us;
        self.faults.add(&outcome.faults);
        self.violations.extend(outcome.violation.clone().map(|violation| (seed, violation)));
        self.hash ^= outcome.trace.hash().rotate_left((seed % 64) as u32);
    }

    fn show_progress(&self, of: u64, elapsed: Duration) {
        let done = self.seeds * 30 / of.max(1);
        let bar: String = (0..30).map(|at| if at < done { '#' } else { '.' }).collect();
        let Self { seeds, operations, .. } = self;
        let (faults, seconds) = (self.faults.total(), elapsed.as_secs());
        eprint!(
            "\r[{bar}] {seeds} of {of} seeds, {operations} operations, {faults} faults, {seconds} s "
        );
    }

    #[allow(clippy::print_stdout, reason = "this is what the program is for")]
    fn print(&self, json: bool) {
        let hours = self.simulated_us as f64 / 3.6e9;
        let faults = self.faults.0.iter().map(|(name, count)| format!("\"{name}\": {count}"));
        let faults = faults.collect::<Vec<_>>().join(", ");
        let Self { seeds, operations, hash, .. } = self;
        let violations = self.violations.len();
        if json {
            println!(
                "{{\"seeds\": {seeds}, \"simulated_hours\": {hours:.2}, \"operations\": {operations}, \
                 \"faults\": {{{faults}}}, \"violations\": {violations}, \"hash\": \"{hash:016x}\"}}"
            );
        } else {
            let faults = faults.replace('"', "");
            println!(
                "\n{seeds} seeds, {hours:.1} simulated hours, {operations} operations, {violations} violations"
            );
            println!("faults: {faults}\nhash {hash:016x}");
            for (seed, violation) in &self.violations {
                println!("seed {seed}: {violation}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_run() {
        for seed in [1, 2, 3] {
            let hash = || run(Plan { seed, ..Plan::default() }).trace.hash();
            assert_eq!(hash(), hash(), "seed {seed}");
        }
        let other = run(Plan { seed: 4, ..Plan::default() }).trace.hash();
        assert_ne!(run(Plan { seed: 5, ..Plan::default() }).trace.hash(), other);
    }
}
