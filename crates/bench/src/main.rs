//! Measures Holdfast next to its peers: the same work, on the same machine, in one run.
//!
//! The story of a run: `main` inspects the machine and finds or builds the servers (`peers`). Then,
//! measurement by measurement (`measure`) and setup by setup, servers are started on free ports,
//! clients (`clients`) connect and work, and the figures go into the `report`. Each of these steps
//! has a time limit and leaves no process behind (`stage`). docs/performance.md explains the
//! figures.

mod clients;
mod machine;
mod measure;
mod peers;
mod procfs;
mod report;
mod sockets;
mod stage;
mod stats;
mod table;

use clap::{Parser, ValueEnum};
use clients::ClientKind;
use machine::Machine;
use measure::{Measure, Plan};
use peers::{Peer, Programs};
use report::Report;
use stage::{Stop, stage};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// How long a peer may take to build or download.
const INSTALL_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Longer runs would only fill memory with samples.
const SECONDS_MAX: u64 = 600;

/// Measure Holdfast beside etcd, ZooKeeper, Redis, PostgreSQL and Cassandra, all on this machine
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  cargo build --release                                    the `holdfast` that is measured
  cargo run --release -p holdfast-bench                    everything: over 20 minutes
  cargo run --release -p holdfast-bench -- --peers holdfast,etcd --measure pairs --clients 64
  cargo run --release -p holdfast-bench -- --peers holdfast,redis --measure redis --rounds 3
  cargo run --release -p holdfast-bench -- --peers holdfast,zookeeper --measure zookeeper
  cargo run --release -p holdfast-bench -- --by drivers --measure pairs,looping
  cargo run --release -p holdfast-bench -- --peers holdfast --before old/holdfast --rounds 5
  cargo run --release -p holdfast-bench -- --json > figures.json

Only figures of one run on a quiet machine can be compared. Where others use the machine too, several
rounds even out what they take.")]
struct Args {
    /// Who is measured
    #[arg(long, value_name = "NAME,...", value_enum, value_delimiter = ',', default_values_t = Peer::value_variants().to_vec())]
    peers: Vec<Peer>,
    /// What is measured
    #[arg(long, value_name = "NAME,...", value_enum, value_delimiter = ',', default_values_t = Measure::value_variants().to_vec())]
    measure: Vec<Measure>,
    /// How clients talk to the servers
    #[arg(long, value_name = "NAME", value_enum, default_value_t = ClientKind::Bare)]
    by: ClientKind,
    /// How long each figure is measured, in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    seconds: u64,
    /// How many times each measurement goes round all servers; a figure is then the middle one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// How long servers are put to work before anything is measured, in seconds: a JVM needs it
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=SECONDS_MAX))]
    warm_up: u64,
    /// For pairs: how many clients
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 16, 64, 256], value_parser = clap::value_parser!(u32).range(1..=5000))]
    clients: Vec<u32>,
    /// For pairs: Holdfast once more with its clients sharing so many connections; 0 for not
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=5000))]
    connections: u32,
    /// For contending: how many clients
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=5000))]
    contenders: u32,
    /// For gap: how many times the leader is killed
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    kills: u32,
    /// For held: how many locks are held
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    held_locks: u32,
    /// For growth: how many locks exist
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    existing_locks: u32,
    /// For growth: how many wait for one lock
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    waiters: u32,
    /// The `holdfast` binary; by default the one beside this program
    #[arg(long, value_name = "PATH")]
    holdfast: Option<PathBuf>,
    /// An older `holdfast` binary, measured as well: what has become faster or slower since
    #[arg(long, value_name = "PATH")]
    before: Option<PathBuf>,
    /// ZooKeeper's jar, such as Debian's /usr/share/java/zookeeper.jar; by default, the release that
    /// its project publishes is downloaded
    #[arg(long, value_name = "PATH")]
    zookeeper_jar: Option<PathBuf>,
    /// Where the servers' data goes, on the disk that is to be measured; by default the system's
    /// folder for temporary files
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

impl Args {
    fn plan(&self) -> Plan {
        Plan {
            programs: Programs::new(
                self.holdfast.clone(),
                self.before.clone(),
                self.zookeeper_jar.clone(),
            ),
            by: self.by,
            folder: self.dir.clone().unwrap_or_else(std::env::temp_dir),
            seconds: Duration::from_secs(self.seconds),
            warm_up: Duration::from_secs(self.warm_up),
            clients: self.clients.iter().map(|clients| *clients as usize).collect(),
            connections: self.connections as usize,
            contenders: self.contenders as usize,
            kills: self.kills as usize,
            held_locks: self.held_locks as usize,
            existing_locks: self.existing_locks as usize,
            waiters: self.waiters as usize,
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(report) if report.has_failures() => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
        Err(Stop::Interrupted) => {
            eprintln!("interrupted: all servers have been stopped");
            ExitCode::FAILURE
        }
        Err(Stop::Failed(why)) => {
            eprintln!("holdfast-bench: {why}");
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stdout, reason = "the figures were asked for")]
fn run(args: &Args) -> Result<Report, Stop> {
    machine::allow_many_files();
    let mut plan = args.plan();
    let machine = Machine::look(&plan.folder)?;
    eprintln!("{}", machine.to_line());
    if machine.data_in_memory {
        eprintln!(
            "warning: {} is in memory, where fsync costs nothing: use --dir with a folder on a disk",
            plan.folder.display()
        );
    }
    for peer in &args.peers {
        stage(INSTALL_LIMIT, plan.programs.prepare(*peer))?;
    }
    let report = measure_all(args, &plan)?;
    if args.json {
        println!("{:#}", report.to_json(machine.to_json()));
    } else {
        print!("{}", report.to_text(&machine.to_line()));
    }
    Ok(report)
}

/// Measurement by measurement, so that setups that are compared are measured soon after one
/// another.
fn measure_all(args: &Args, plan: &Plan) -> Result<Report, Stop> {
    let mut report = Report::default();
    let rounds = args.measure.iter().flat_map(|measure| (1..=args.rounds).map(|n| (*measure, n)));
    for (measure, round) in rounds {
        eprintln!("{}, round {round} of {}", measure.name(), args.rounds);
        let setups = args.peers.iter().flat_map(|peer| plan.programs.setups(*peer));
        for setup in setups.filter(|setup| measure.applies(*setup)) {
            for step in 0..measure.steps() {
                let what = format!("{} of {}, step {}", measure.name(), setup.name(), step + 1);
                eprintln!("{what} of {}", measure.steps());
                match stage(measure.limit(plan), measure.run(setup, plan, step)) {
                    Ok(rows) => report.add(rows),
                    Err(Stop::Failed(why)) => {
                        eprintln!("failed: {what}: {why}");
                        report.fail(what, why);
                    }
                    Err(Stop::Interrupted) => return Err(Stop::Interrupted),
                }
            }
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    const PERFORMANCE: &str = include_str!("../../../docs/performance.md");

    /// The words after `cargo run ... holdfast-bench [--]` on each line that has them.
    fn commands(text: &str) -> Vec<Vec<&str>> {
        text.lines()
            .filter_map(|line| line.split_once("cargo run --release -p holdfast-bench"))
            .map(|(_, rest)| rest.split("  ").next().unwrap_or_default())
            .map(|rest| rest.split_once('>').map_or(rest, |(command, _)| command))
            .map(|rest| rest.split_ascii_whitespace().filter(|word| *word != "--").collect())
            .collect()
    }

    #[test]
    fn documented_commands_parse() {
        let help = Args::command().render_help().to_string();
        let (documented, helped) = (commands(PERFORMANCE), commands(&help));
        assert!(documented.len() >= 5 && helped.len() >= 3, "{documented:?} {helped:?}");
        for words in documented.into_iter().chain(helped) {
            let typed = ["holdfast-bench"].into_iter().chain(words.iter().copied());
            assert!(Args::try_parse_from(typed).is_ok(), "{words:?}");
        }
    }

    #[test]
    fn every_measurement_and_peer_is_on_by_default() {
        let args = Args::try_parse_from(["holdfast-bench"]).expect("no argument is needed");
        assert_eq!(args.peers, Peer::value_variants());
        assert_eq!(args.measure, Measure::value_variants());
        assert_eq!(args.clients, [1, 16, 64, 256]);
    }

    #[test]
    fn invalid_input_is_refused() {
        for words in
            [["--clients", "0"], ["--seconds", "0"], ["--peers", "consul"], ["--kills", "0"]]
        {
            let typed = ["holdfast-bench"].into_iter().chain(words);
            assert!(Args::try_parse_from(typed).is_err(), "{words:?}");
        }
    }
}
