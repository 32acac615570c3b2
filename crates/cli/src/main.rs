//! The `holdfast` binary.

mod cluster;
mod dev;
mod play;
mod serve;
mod settings;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Opens a log of a gigabyte three times as fast as the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A distributed lock service: fencing tokens, leases, fair lines, certain outcomes.
#[derive(Debug, Parser)]
#[command(
    version,
    arg_required_else_help = true,
    after_help = "\
Try it:
  holdfast dev                 one node, in this terminal
  holdfast dev --nodes 3       a cluster of three, in this terminal
  printf 'ana: acquire seat-12A ttl=5s\\nbo: acquire seat-12A\\ntick 5s\\n' | holdfast play"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a complete Holdfast for trying it out: one node, or several
    Dev(dev::Dev),
    /// Run one node of a cluster
    Serve(serve::Serve),
    /// Print a new cluster key: a cluster's id and the secret that its members share
    ///
    /// Copy its file to every first member of a new cluster: `holdfast new-key > cluster.key`.
    NewKey,
    /// Begin a new cluster of one with what a backup holds
    Restore(cluster::Restore),
    /// Let a node whose data is damaged come back as a new member
    Rejoin(cluster::Rejoin),
    /// Try the lock semantics at a prompt, in one process that keeps nothing
    ///
    /// Type `ana: acquire seat-12A ttl=5s`, then `bo: acquire seat-12A`, then `tick 5s`, and see
    /// who is served. Time passes only by `tick`. `help` lists the verbs.
    Play,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Dev(dev) => dev.run(),
        Command::Serve(serve) => serve.run(),
        Command::NewKey => cluster::new_key(),
        Command::Restore(restore) => restore.run(),
        Command::Rejoin(rejoin) => rejoin.run(),
        Command::Play => play::run().map_err(|error| error.to_string()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("holdfast: {error}");
            ExitCode::FAILURE
        }
    }
}
