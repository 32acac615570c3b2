//! A thousand workers take video chunks from a queue, process them and upload the result. With a lock
//! for each chunk, no chunk is processed twice; without locks, the program measures the waste.
//!
//! `cargo run --release -p video-queue`
//!
//! Holdfast and the object store are inside this process: nothing else is needed.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

#[path = "../../shared-files/src/embedded.rs"]
mod embedded;
mod queue;
mod run;

use clap::Parser;
use clap::builder::RangedU64ValueParser;
use std::process::ExitCode;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Process video chunks from a queue with many workers
///
/// Runs twice, with a lock for each chunk and without locks, and counts the work that was done twice.
#[derive(Parser, Debug, Clone)]
#[command(name = "video-queue")]
struct Args {
    /// Number of workers; every 50 of them share a connection, like the workers of one machine
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = count(100_000))]
    workers: usize,
    /// Number of chunks to process
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = count(100_000))]
    chunks: usize,
    /// How long it takes to process a chunk, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    chunk_ms: u64,
}

fn count(max: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=max)
}

#[tokio::main]
async fn main() -> ExitCode {
    match compare(&Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn compare(args: &Args) -> Result<(), Error> {
    println!(
        "{} workers, {} chunks of {}ms; the queue hands out a chunk again and again until it is done",
        args.workers, args.chunks, args.chunk_ms
    );
    let locked = run::run(args, true).await?;
    let unlocked = run::run(args, false).await?;
    println!();
    println!("                           with locks   without");
    let row = |what: &str, of: fn(&run::Summary) -> u64| {
        println!("{what:24} {:12} {:9}", of(&locked), of(&unlocked));
    };
    row("chunks", |summary| summary.chunks);
    row("times processed", |summary| summary.processed);
    row("times uploaded", |summary| summary.uploads);
    row("results in the store", |summary| summary.stored);
    row("work done twice", run::Summary::done_twice);
    row("wasted work, ms", |summary| summary.done_twice() * summary.chunk_ms);
    row("locks acquired", |summary| summary.acquired);
    row("locks held by others", |summary| summary.denied);
    let once = [locked.processed, locked.uploads, locked.stored];
    if once != [locked.chunks; 3] {
        return Err("a chunk was not processed and uploaded exactly once".into());
    }
    Ok(())
}
