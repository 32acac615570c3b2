//! The `holdfast` binary.

mod play;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// A distributed lock service: fencing tokens, leases, fair lines, certain outcomes.
#[derive(Debug, Parser)]
#[command(
    version,
    arg_required_else_help = true,
    after_help = "\
Try it:
  holdfast dev
  printf 'ana: acquire seat-12A ttl=5s\\nbo: acquire seat-12A\\ntick 5s\\n' | holdfast dev"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Try the lock semantics at a prompt, in one process that keeps nothing
    ///
    /// Type `ana: acquire seat-12A ttl=5s`, then `bo: acquire seat-12A`, then `tick 5s`, and see
    /// who is served. Time passes only by `tick`. `help` lists the verbs.
    #[command(visible_alias = "play")]
    Dev,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Dev => play::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("holdfast: {error}");
            ExitCode::FAILURE
        }
    }
}
