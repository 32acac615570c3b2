//! `holdfast serve`: one node of a cluster.

use crate::settings::Settings;
use crate::table::say;
use clap::Args;
use holdfast_node::NodeId;
use holdfast_server::{First, Server};
use std::io::{IsTerminal, Read};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Membership settings apply only at the first start; after that, the data folder decides.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  A cluster of one; its key is made in the folder:
    holdfast serve --data-dir data

  The first of three; the others get the same key file and the same list:
    holdfast new-key > cluster.key
    holdfast serve --data-dir data --cluster-key cluster.key --listen 10.0.0.1 \\
        --password-file password --node 1 --members 1=10.0.0.1:7410,2=10.0.0.2:7410,3=10.0.0.3:7410

  One more member of a running cluster; it gets its vote when it has caught up:
    holdfast serve --data-dir data --cluster-key cluster.key --listen 10.0.0.4 \\
        --password-file password --join 10.0.0.1:7410,10.0.0.2:7410

  The settings in a file, and what counts of them:
    holdfast serve --config holdfast.toml --print-config")]
pub(crate) struct Serve {
    #[command(flatten)]
    settings: Settings,
    /// A TOML file with the same settings; flags and the environment take precedence
    #[arg(long, value_name = "FILE", env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
    /// Print the effective settings as such a file and exit
    #[arg(long)]
    print_config: bool,
    /// Stop when standard input is closed, so that the node ends with its parent
    #[arg(long, hide = true)]
    stop_with_stdin: bool,
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), String> {
        let file = self.config.as_deref().map(Settings::read).transpose()?;
        let settings = self.settings.or(file.unwrap_or_default());
        if self.print_config {
            return say(&settings.to_toml()?).map_err(|error| error.to_string());
        }
        log_to_stderr();
        let Settings { data_dir, address, cluster_key, node, members, join } = settings;
        let data_dir = data_dir.ok_or("name the data folder: --data-dir FOLDER")?;
        let mut config = address.config(data_dir, first(node, &members, join)?)?;
        config.key = cluster_key;
        let stdin_counts = self.stop_with_stdin;
        run_node(async {
            let contact = config.contact()?;
            let server = Server::start(&config).await?;
            let others =
                config.open_doors()?.into_iter().filter(|(door, _)| door.setting.is_some());
            let others: String =
                others.map(|(door, address)| format!(", {} at {address}", door.clients)).collect();
            tracing::info!("node {} serves at {}{others}", server.id(), contact.http);
            server.run(stop_signal(stdin_counts)).await
        })
    }
}

fn first(node: Option<u64>, members: &[String], join: Vec<String>) -> Result<First, String> {
    let node = match (node, members.is_empty(), join.is_empty()) {
        (_, false, false) => {
            return Err(
                "--members begins a new cluster, --join enters one: say one of the two".into()
            );
        }
        (_, true, false) => return Ok(First::Join { addresses: join }),
        (None, true, true) => return Ok(First::Alone),
        (Some(node), false, true) => node,
        (_, _, true) => return Err("--node and --members belong together".into()),
    };
    let members: Vec<(NodeId, String)> =
        members.iter().map(|member| parse_member(member)).collect::<Result<_, _>>()?;
    if !members.iter().any(|(id, _)| id.0 == node) {
        return Err(format!("--node {node} is not among --members"));
    }
    let mut ids: Vec<u64> = members.iter().map(|(id, _)| id.0).collect();
    ids.sort_unstable();
    if ids.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("an id stands twice in --members: each node needs its own".to_owned());
    }
    Ok(First::Member { node: NodeId(node), members })
}

fn parse_member(text: &str) -> Result<(NodeId, String), String> {
    let wrong = || format!("`{text}` is not a member: write ID=HOST:PORT, as in 1=10.0.0.1:7410");
    let (id, address) = text.split_once('=').ok_or_else(wrong)?;
    let id = id.parse().ok().filter(|id| *id > 0).ok_or_else(wrong)?;
    let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { Ok((NodeId(id), address.to_owned())) } else { Err(wrong()) }
}

pub(crate) fn runtime() -> Result<Runtime, String> {
    Runtime::new().map_err(|error| format!("can't start: {error}"))
}

/// For a node: its loop and its disk have their own threads, so connections get half of the cores.
/// With as many threads as cores they would spend their time waking each other.
fn node_runtime() -> Result<Runtime, String> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(cores.div_ceil(2)).enable_all().build();
    runtime.map_err(|error| format!("can't start: {error}"))
}

/// Runs a node until it ends. Does not wait for a script that may still be running on its own
/// thread.
pub(crate) fn run_node(node: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let runtime = node_runtime()?;
    let ended = runtime.block_on(node);
    runtime.shutdown_background();
    ended
}

/// Logs to stderr, at the level in HOLDFAST_LOG (default: info).
pub(crate) fn log_to_stderr() {
    let filter = EnvFilter::try_from_env("HOLDFAST_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // Internal errors would go to stderr too, with a panic if that can't be written.
        .log_internal_errors(false)
        .init();
}

/// Resolves on SIGTERM or Ctrl-C, or if `stdin_counts` at the end of stdin.
pub(crate) async fn stop_signal(stdin_counts: bool) {
    let stdin_ended = async {
        if stdin_counts {
            // On its own thread: the runtime would wait for a read that never ends.
            let (ended, wait) = tokio::sync::oneshot::channel();
            std::thread::spawn(move || {
                let mut stdin = std::io::stdin().lock();
                let mut buffer = [0; 64];
                while stdin.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
                let _ = ended.send(());
            });
            let _ = wait.await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                terminate.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = stdin_ended => {}
        () = terminated => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
