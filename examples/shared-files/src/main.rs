//! Workers edit the same files in an object store, each a process of its own. They are stopped for
//! longer than their lease, woken up and killed at random, and no file is corrupted.
//!
//! `cargo run --release -p shared-files`
//!
//! The object store is a folder of local disk, and Holdfast runs inside this process: nothing else is
//! needed. The same run is then made without fences, to show what they are for.

#![allow(clippy::print_stdout, reason = "it is there to be looked at")]

mod embedded;
mod run;
mod worker;

use clap::Parser;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Workers edit the same files while they are stopped and killed.
#[derive(Parser, Debug, Clone)]
struct Args {
    /// How often a worker is stopped or killed
    #[arg(long, default_value_t = 20)]
    stops: usize,
    /// Worker processes
    #[arg(long, default_value_t = 6)]
    workers: usize,
    /// Files that they share
    #[arg(long, default_value_t = 3)]
    files: usize,
    #[command(subcommand)]
    worker: Option<Role>,
}

#[derive(clap::Subcommand, Debug, Clone)]
enum Role {
    /// What the program starts itself: one worker.
    #[command(hide = true)]
    Worker(worker::Job),
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let args = Args::parse();
    if let Some(Role::Worker(job)) = args.worker {
        return worker::work(job).await;
    }
    if args.stops == 0 || args.workers == 0 || args.files == 0 {
        return Err("--stops, --workers and --files must be at least 1".into());
    }
    println!(
        "{} workers edit {} files; {} times, one of them is stopped past its lease or killed",
        args.workers, args.files, args.stops
    );
    let fenced = run::run(&args, true).await?;
    let open = run::run(&args, false).await?;
    println!();
    println!("                          with fences   without");
    let row = |what: &str, of: fn(&run::Summary) -> usize| {
        println!("{what:24} {:12} {:9}", of(&fenced), of(&open));
    };
    row("edits acknowledged", |summary| summary.acknowledged);
    row("workers stopped", |summary| summary.stopped);
    row("workers killed", |summary| summary.killed);
    row("late writes refused", |summary| summary.refused);
    row("edits lost", |summary| summary.lost);
    row("files corrupted", |summary| summary.corrupted);
    if fenced.lost > 0 || fenced.corrupted > 0 {
        return Err("a fence has failed".into());
    }
    Ok(())
}
