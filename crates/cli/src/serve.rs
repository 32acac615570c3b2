//! `holdfast serve`: one node of a cluster.

use clap::Args;
use holdfast_node::NodeId;
use holdfast_server::{Config, First, Password, Server};
use std::io::{IsTerminal, Read};
use std::net::IpAddr;
use std::path::PathBuf;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// The node that a folder already is goes on as it was: what is said about members counts only at
/// the first start.
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
        --password-file password --join 10.0.0.1:7410,10.0.0.2:7410")]
pub(crate) struct Serve {
    /// The folder of this node's data
    #[arg(long, value_name = "FOLDER")]
    data_dir: PathBuf,
    #[command(flatten)]
    address: Address,
    /// The cluster's key; by default `cluster.key` in the data folder
    #[arg(long, value_name = "FILE")]
    cluster_key: Option<PathBuf>,
    /// Which of the first members this node is
    #[arg(long, value_name = "ID", requires = "members")]
    node: Option<u64>,
    /// All first members of a new cluster, with the addresses for their peers
    #[arg(long, value_name = "ID=HOST:PORT,...", value_delimiter = ',', requires = "node")]
    members: Vec<String>,
    /// Become a new member of a running cluster: where its members are reached by their peers
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', conflicts_with = "members")]
    join: Vec<String>,
    /// Stop when standard input ends: so a parent's end is not missed
    #[arg(long, hide = true)]
    stop_with_stdin: bool,
}

/// The port for HTTP, if none is said.
const PORT: u16 = 7400;

/// Where a node listens and is reached.
#[derive(Debug, Args)]
pub(crate) struct Address {
    /// The address to listen on
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    listen: IpAddr,
    /// Where others reach this node, if not at the address it listens on
    #[arg(long, value_name = "HOST")]
    advertise: Option<String>,
    /// The port for HTTP; peers use the tenth above it
    #[arg(long, value_name = "BASE", default_value_t = PORT)]
    port: u16,
    /// A file whose first line is the password that every door asks for
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Listen beyond this machine without a password
    #[arg(long)]
    insecure: bool,
}

impl Address {
    /// As it is to be typed again; what is as by default is left out.
    pub(crate) fn words(&self) -> String {
        let mut words = String::new();
        if !self.listen.is_loopback() {
            words += &format!(" --listen {}", self.listen);
        }
        if let Some(file) = &self.password_file {
            words += &format!(" --password-file {}", file.display());
        }
        if self.insecure {
            words += " --insecure";
        }
        if let Some(host) = &self.advertise {
            words += &format!(" --advertise {host}");
        }
        if self.port != PORT {
            words += &format!(" --port {}", self.port);
        }
        words
    }

    pub(crate) fn config(&self, data_dir: PathBuf, first: First) -> Result<Config, String> {
        let password = self.password_file.as_deref().map(Password::read).transpose()?;
        if !self.listen.is_loopback() && !self.insecure && password.is_none() {
            return Err(format!(
                "listening on {} lets everybody who can reach it take and break locks: say \
                 --password-file FILE, or --insecure if that is meant",
                self.listen
            ));
        }
        if self.listen.is_unspecified() && self.advertise.is_none() {
            return Err(format!(
                "{} is no address that others can reach: say --advertise HOST",
                self.listen
            ));
        }
        Ok(Config {
            data_dir,
            listen: self.listen,
            advertise: self.advertise.clone(),
            port: self.port,
            key: None,
            first,
            password,
        })
    }
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), String> {
        log_to_stderr();
        let first = first(self.node, &self.members, self.join)?;
        let mut config = self.address.config(self.data_dir, first)?;
        config.key = self.cluster_key;
        let stdin_counts = self.stop_with_stdin;
        runtime()?.block_on(async {
            let contact = config.contact()?;
            let server = Server::start(&config).await?;
            tracing::info!("node {} serves at {}", server.id(), contact.http);
            server.run(told_to_stop(stdin_counts)).await
        })
    }
}

fn first(node: Option<u64>, members: &[String], join: Vec<String>) -> Result<First, String> {
    if !join.is_empty() {
        return Ok(First::Join { addresses: join });
    }
    let Some(node) = node else { return Ok(First::Alone) };
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
    let wrong = || format!("`{text}` is no member: write ID=HOST:PORT, as in 1=10.0.0.1:7410");
    let (id, address) = text.split_once('=').ok_or_else(wrong)?;
    let id = id.parse().ok().filter(|id| *id > 0).ok_or_else(wrong)?;
    let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { Ok((NodeId(id), address.to_owned())) } else { Err(wrong()) }
}

pub(crate) fn runtime() -> Result<Runtime, String> {
    Runtime::new().map_err(|error| format!("can't start: {error}"))
}

/// What happens goes to standard error; HOLDFAST_LOG says how much of it.
pub(crate) fn log_to_stderr() {
    let filter = EnvFilter::try_from_env("HOLDFAST_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}

/// Resolves at SIGTERM or Ctrl-C, or when standard input ends if that counts.
pub(crate) async fn told_to_stop(stdin_counts: bool) {
    let stdin_ended = async {
        if stdin_counts {
            // A thread of its own: the runtime would wait for a read that never ends.
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
