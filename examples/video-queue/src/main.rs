//! A thousand workers take video chunks from a queue, process them and upload the result. With a lock
//! for each chunk, no chunk is processed twice; without, the program measures the waste.
//!
//! `cargo run --release -p video-queue`
//!
//! Holdfast and the object store are inside this process: nothing else is needed.

#![allow(clippy::print_stdout, reason = "it is there to be looked at")]

#[path = "../../shared-files/src/embedded.rs"]
mod embedded;
mod queue;
mod run;

use clap::Parser;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Workers take video chunks from a queue, and none is processed twice.
#[derive(Parser, Debug, Clone)]
struct Args {
    /// Workers, 50 of them on each machine
    #[arg(long, default_value_t = 1_000)]
    workers: usize,
    /// Chunks to process
    #[arg(long, default_value_t = 400)]
    chunks: usize,
    /// How long a chunk takes
    #[arg(long, default_value_t = 100)]
    chunk_ms: u64,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let args = Args::parse();
    if args.workers == 0 || args.chunks == 0 {
        return Err("--workers and --chunks must be at least 1".into());
    }
    println!(
        "{} workers, {} chunks of {} ms; the queue gives a chunk to anybody until it is done",
        args.workers, args.chunks, args.chunk_ms
    );
    let locked = run::run(&args, true).await?;
    let open = run::run(&args, false).await?;
    println!();
    println!("                           with locks   without");
    let row = |what: &str, of: fn(&run::Summary) -> u64| {
        println!("{what:24} {:12} {:9}", of(&locked), of(&open));
    };
    row("chunks processed", |summary| summary.processed);
    row("chunks uploaded", |summary| summary.uploaded);
    row("work done twice", run::Summary::twice);
    row("ms of work wasted", |summary| summary.twice() * summary.chunk_ms);
    row("locks taken", |summary| summary.granted);
    row("locks held by another", |summary| summary.denied);
    if locked.twice() > 0 || locked.uploaded != locked.chunks {
        return Err("a chunk was not processed exactly once".into());
    }
    Ok(())
}
