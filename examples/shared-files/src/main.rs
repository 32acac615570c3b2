//! Workers edit the same files in an object store, each a process of its own. They are stopped for
//! longer than their lease, resumed and killed at random, and no file is corrupted.
//!
//! `cargo run --release -p shared-files`
//!
//! The object store is a temporary folder, and Holdfast runs inside this process: nothing else is
//! needed. The same run is then made without fences, to show what they are for.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

mod embedded;
mod run;
mod worker;

use clap::Parser;
use clap::builder::RangedU64ValueParser;
use std::process::ExitCode;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Edit shared files from many processes while they are stopped and killed
///
/// Runs twice, with fences and without, and compares the files with the edits that were acknowledged.
/// Takes about 2s per stop.
#[derive(Parser, Debug, Clone)]
#[command(name = "shared-files")]
struct Args {
    /// How many times a worker is stopped or killed
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = count(10_000))]
    stops: usize,
    /// Number of worker processes
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = count(100))]
    workers: usize,
    /// Number of files they edit
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = count(1_000))]
    files: usize,
    #[command(subcommand)]
    worker: Option<Role>,
}

#[derive(clap::Subcommand, Debug, Clone)]
enum Role {
    /// One worker; started by the program itself.
    #[command(hide = true)]
    Worker(worker::Job),
}

fn count(max: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=max)
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.worker {
        Some(Role::Worker(job)) => worker::work(job.clone()).await,
        // Dropping the runs ends their workers.
        None => tokio::select! {
            result = compare(&args) => result,
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn compare(args: &Args) -> Result<(), Error> {
    println!(
        "{} workers edit {} files; {} times, one of them is stopped past its lease or killed",
        args.workers, args.files, args.stops
    );
    let fenced = run::run(args, true).await?;
    let unfenced = run::run(args, false).await?;
    println!();
    println!("                          with fences   without");
    let row = |what: &str, of: fn(&run::Summary) -> usize| {
        println!("{what:24} {:12} {:9}", of(&fenced), of(&unfenced));
    };
    row("edits acknowledged", |summary| summary.acknowledged);
    row("workers stopped", |summary| summary.stopped);
    row("workers killed", |summary| summary.killed);
    row("late writes refused", |summary| summary.refused);
    row("edits lost", |summary| summary.lost);
    row("files corrupted", |summary| summary.corrupted);
    if fenced.lost > 0 || fenced.corrupted > 0 {
        return Err("edits were lost in spite of the fences".into());
    }
    Ok(())
}
