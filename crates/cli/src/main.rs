//! The `holdfast` binary.

#![warn(clippy::print_stderr, reason = "it panics if nobody reads: see stderr.rs")]

mod acquire_flags;
mod bench;
mod certs;
mod cluster;
mod commands;
mod dev;
mod door_flags;
mod duration;
mod exit;
mod http;
mod lock;
mod open_files;
mod play;
mod serve;
mod server_flags;
mod settings;
mod stderr;
mod table;
mod tls_flags;
mod top;
mod wall;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use exit::{Exit, Problem};
use std::process::ExitCode;

/// Opens a log of a gigabyte three times as fast as with the system allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A distributed lock service: fencing tokens, leases, fair lines, definite outcomes.
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
    /// Make certificates for TLS: an authority, and what it signs for nodes and clients
    #[command(subcommand)]
    Certs(certs::Certs),
    /// Start a new single-node cluster from a backup
    Restore(cluster::Restore),
    /// Rejoin a node with damaged data as a new member
    Rejoin(cluster::Rejoin),
    /// Allow a node to run in a folder that was moved
    AcceptMove(cluster::AcceptMove),
    /// Try the lock semantics at a prompt, in one process that keeps nothing
    ///
    /// Type `ana: acquire seat-12A ttl=5s`, then `bo: acquire seat-12A`, then `tick 5s`, and see
    /// who is served. Time passes only by `tick`. `help` lists the verbs.
    Play,
    /// Run a command under a lock
    Lock(lock::Lock),
    /// Acquire a lock and print its token, for scripts
    Acquire(commands::acquire::Acquire),
    /// Release a lock taken with `acquire`
    Release(commands::ticket::Release),
    /// Extend a lock taken with `acquire`
    Renew(commands::ticket::Renew),
    /// Set the note of a held lock
    Note(commands::ticket::Note),
    /// Mark a lock as recovered after its holder died
    Recovered(commands::ticket::Recovered),
    /// Show the outcome of an acquire
    Outcome(commands::acquire::Outcome),
    /// List locks
    Ls(commands::ls::Ls),
    /// Show one lock and its line
    Show(commands::show::Show),
    /// Show who waits for whom
    Why(commands::why::Why),
    /// Follow the events of locks
    Watch(commands::watch::Watch),
    /// Show what happened to a lock
    History(commands::history::History),
    /// List sessions
    Sessions(commands::sessions::Sessions),
    /// Ask a holder to release its lock
    Revoke(commands::operator::Revoke),
    /// Take a lock away from its holder
    Break(commands::operator::Break),
    /// Read and write the fenced register
    Register(commands::register::Register),
    /// Show the nodes of the cluster
    Status(commands::status::Status),
    /// Change the members of the cluster
    Members(commands::members::Members),
    /// Manage users: who may log in
    Users(commands::users::Users),
    /// Manage roles: who may do what
    Roles(commands::users::Roles),
    /// Show who did what
    Audit(commands::users::Audit),
    /// Watch the cluster, live
    Top(top::Top),
    /// Measure a running cluster
    Bench(bench::Bench),
    /// Back up the cluster to a file while it serves
    Backup(commands::backup::Backup),
    /// Print a shell completion script
    Completions(commands::completions::Completions),
    /// Started by `holdfast lock`
    #[command(hide = true)]
    GuardChild(lock::GuardChild),
    /// Started by `holdfast lock`
    #[command(hide = true)]
    GuardRunner(lock::GuardRunner),
    /// Started by `holdfast lock`
    #[command(hide = true)]
    GuardShim(lock::GuardShim),
}

impl Command {
    fn is_guard(&self) -> bool {
        matches!(self, Self::GuardChild(_) | Self::GuardRunner(_) | Self::GuardShim(_))
    }

    fn run(self) -> Result<Exit, Problem> {
        let done = match self {
            Self::Dev(dev) => dev.run(),
            Self::Serve(serve) => serve.run(),
            Self::NewKey => cluster::new_key(),
            Self::Certs(certs) => certs.run(),
            Self::Restore(restore) => restore.run(),
            Self::Rejoin(rejoin) => rejoin.run(),
            Self::AcceptMove(accept) => accept.run(),
            Self::Play => play::run().map_err(|error| error.to_string()),
            Self::Lock(lock) => return lock.run(),
            Self::Acquire(acquire) => return acquire.run(),
            Self::Release(release) => return release.run(),
            Self::Renew(renew) => return renew.run(),
            Self::Note(note) => return note.run(),
            Self::Recovered(recovered) => return recovered.run(),
            Self::Outcome(outcome) => return outcome.run(),
            Self::Ls(ls) => return ls.run(),
            Self::Show(show) => return show.run(),
            Self::Why(why) => return why.run(),
            Self::Watch(watch) => return watch.run(),
            Self::History(history) => return history.run(),
            Self::Sessions(sessions) => return sessions.run(),
            Self::Revoke(revoke) => return revoke.run(),
            Self::Break(broken) => return broken.run(),
            Self::Register(register) => return register.run(),
            Self::Status(status) => return status.run(),
            Self::Members(members) => return members.run(),
            Self::Users(users) => return users.run(),
            Self::Roles(roles) => return roles.run(),
            Self::Audit(audit) => return audit.run(),
            Self::Top(top) => return top.run(),
            Self::Bench(bench) => return bench.run(),
            Self::Backup(backup) => return backup.run(),
            Self::Completions(completions) => return completions.run(Cli::command()),
            Self::GuardChild(guard) => return guard.run(),
            Self::GuardRunner(runner) => return runner.run(),
            Self::GuardShim(shim) => return shim.run(),
        };
        done.map(|()| Exit::Success).map_err(Problem::from)
    }
}

/// Whether a shell may evaluate the output: for `acquire`, even with a typo in it.
fn may_be_evaluated() -> bool {
    let typed = std::env::args_os().nth(1);
    let other = typed.filter(|typed| typed != "acquire").is_some_and(|typed| {
        Cli::command().get_subcommands().any(|command| typed == command.get_name())
    });
    !other && std::env::args_os().all(|arg| arg != "--json")
}

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|typed| typed == "acquire") {
        // Killed before it prints anything it would leave the shell an empty string, which
        // evaluates successfully.
        lock::hold_back_signals();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // If this can't be printed, there is nowhere to report that.
            let _ = error.print();
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            if asked {
                return Exit::Success.into();
            }
            if may_be_evaluated() {
                commands::acquire::stop_shell(Exit::Usage);
            }
            return Exit::Usage.into();
        }
    };
    // The guards of `lock` are started by a process that has already checked, and must not fail for
    // this.
    let looked = if cli.command.is_guard() { Ok(()) } else { open_files::check() };
    let exit = looked.and_then(|()| cli.command.run()).unwrap_or_else(|problem| {
        stderr::eprint_line!("holdfast: {problem}");
        problem.exit
    });
    stderr::flush();
    exit.into()
}
