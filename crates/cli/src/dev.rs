//! `holdfast dev`: a throwaway node or cluster, for trying things out.

use crate::certs;
use crate::serve::{log_to_stderr, run_node, runtime, stop_signal};
use crate::stderr::eprint_line;
use clap::Args;
use holdfast_server::{
    ClusterKey, Config, DOORS, DoorAddresses, First, PEER_PORT_ABOVE, Server, TlsFiles,
    ports_are_free,
};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Reachable from this machine only.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The most nodes: more would only compete for this machine's CPU and disk.
const NODES_MAX: u16 = 9;

/// The distance between one node's ports and the next node's.
const PORTS_APART: u16 = 100;

/// How long the certificates of `--tls` are valid.
const DEV_CERT_DAYS: u64 = 365;

/// How long until a dead node is restarted.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// How long a node may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Listens on this machine only, without a password, and prints all addresses.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast dev                           one node; its data goes when it ends
  holdfast dev --data-dir data           the same, and the data stays
  holdfast dev --nodes 3                 a cluster of three processes; kill one and see
  holdfast dev --tls                     the same over TLS, with certificates that it makes")]
pub(crate) struct Dev {
    /// How many nodes; several run in separate processes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=NODES_MAX as i64))]
    nodes: u16,
    /// The first node's port for HTTP; Redis clients use PORT+1, ZooKeeper clients PORT+2, peers
    /// PORT+10, the next node PORT+100
    #[arg(long, value_name = "BASE", default_value_t = 7400)]
    port: u16,
    /// Keep the data here, node K in `node-K`. Default: deleted on exit
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// Speak TLS on every port, with an authority and certificates made for this run, in `tls` beside
    /// the nodes' data
    #[arg(long)]
    tls: bool,
    /// Don't restart a node that died
    #[arg(long)]
    no_restart: bool,
}

impl Dev {
    pub(crate) fn run(self) -> Result<(), String> {
        log_to_stderr();
        let temporary = tempfile::Builder::new().prefix("holdfast-").tempdir();
        let (folder, kept) = match (&self.data_dir, &temporary) {
            (Some(folder), _) => (folder.clone(), true),
            (None, Ok(temporary)) => (temporary.path().to_path_buf(), false),
            (None, Err(error)) => return Err(format!("can't make a folder for the data: {error}")),
        };
        let last = self.port.checked_add((self.nodes - 1) * PORTS_APART);
        if last.and_then(|last| last.checked_add(PEER_PORT_ABOVE)).is_none() {
            return Err(format!("--port {} leaves no room for the other ports", self.port));
        }
        let tls = self.tls.then(|| certificates(&folder)).transpose()?;
        let welcome = self.welcome(&folder, kept, tls.as_ref());
        if self.nodes == 1 {
            self.run_one(&folder, &welcome, tls)
        } else {
            self.run_several(&folder, &welcome, tls.as_ref())
        }
    }

    fn http_port(&self, node: u16) -> u16 {
        self.port + (node - 1) * PORTS_APART
    }

    fn welcome(&self, folder: &Path, kept: bool, tls: Option<&TlsFiles>) -> String {
        let mut text = format!("Holdfast {}\n", env!("CARGO_PKG_VERSION"));
        for node in 1..=self.nodes {
            let http = self.http_port(node);
            text += &format!("  node {node}");
            for door in DOORS {
                let shown_as = if tls.is_some() { door.shown_as_tls } else { door.shown_as };
                text += &format!("   {shown_as}127.0.0.1:{}", http + door.port_above);
            }
            text += &format!("   peers 127.0.0.1:{}\n", http + PEER_PORT_ABOVE);
        }
        let fate = if kept { "it stays" } else { "deleted on exit; --data-dir keeps it" };
        text += &format!("  data     {} ({fate})\n", folder.display());
        let ca = tls.map(|tls| tls.ca.display().to_string()).unwrap_or_default();
        if tls.is_some() {
            text += &format!("  TLS      every port; the authority is {ca}\n");
        }
        text += "Try:\n";
        for door in DOORS {
            let port = (self.port + door.port_above).to_string();
            let examples = if tls.is_some() { door.tls_examples } else { door.examples };
            for example in examples {
                let example = example.replace("{port}", &port).replace("{ca}", &ca);
                text += &format!("  {example}\n");
            }
        }
        if tls.is_some() {
            text += &format!(
                "In Rust:\n  Client::builder().ca_certificate(std::fs::read({ca:?})?).connect({:?})\n",
                format!("https://127.0.0.1:{}", self.port)
            );
        }
        text + "Press Ctrl-C to stop.\n"
    }

    fn run_one(&self, folder: &Path, welcome: &str, tls: Option<TlsFiles>) -> Result<(), String> {
        let config = Config {
            data_dir: folder.join("node-1"),
            listen: HERE,
            advertise: None,
            allow_hosts: Vec::new(),
            port: self.port,
            doors: DoorAddresses::default(),
            key: None,
            first: First::Alone,
            password: None,
            tls,
        };
        run_node(async {
            let server = Server::start(&config).await?;
            greet(welcome);
            server.run(stop_signal(false)).await
        })
    }

    fn run_several(
        &self,
        folder: &Path,
        welcome: &str,
        tls: Option<&TlsFiles>,
    ) -> Result<(), String> {
        // Checked here so that it is reported once: each node would report it on every restart.
        let ports = (1..=self.nodes).map(|node| self.http_port(node));
        let above: Vec<u16> =
            DOORS.iter().map(|door| door.port_above).chain([PEER_PORT_ABOVE]).collect();
        ports_are_free(HERE, ports.flat_map(|http| above.iter().map(move |above| http + above)))?;
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("can't make {}: {error}", folder.display()))?;
        let key = folder.join("cluster.key");
        if !key.exists() {
            ClusterKey::draw().write_new(&key)?;
        }
        greet(welcome);
        runtime()?.block_on(async {
            let (stop, stopping) = watch::channel(false);
            let mut nodes = JoinSet::new();
            for node in 1..=self.nodes {
                let command = self.command(node, folder, &key, tls)?;
                nodes.spawn(keep(node, command, stopping.clone(), !self.no_restart));
            }
            tokio::select! {
                () = stop_signal(false) => {}
                () = all_ended(&mut nodes) => {
                    return Err("no node is left".to_owned());
                }
            }
            let _ = stop.send(true);
            all_ended(&mut nodes).await;
            Ok(())
        })
    }

    fn command(
        &self,
        node: u16,
        folder: &Path,
        key: &Path,
        tls: Option<&TlsFiles>,
    ) -> Result<Command, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let peer = |node| format!("{node}=127.0.0.1:{}", self.http_port(node) + PEER_PORT_ABOVE);
        let members: Vec<String> = (1..=self.nodes).map(peer).collect();
        let mut command = Command::new(program);
        command
            .arg("serve")
            .arg("--stop-with-stdin")
            .arg("--data-dir")
            .arg(folder.join(format!("node-{node}")))
            .arg("--cluster-key")
            .arg(key)
            .args(["--port", &self.http_port(node).to_string()])
            .args(["--node", &node.to_string()])
            .args(["--members", &members.join(",")])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(TlsFiles { cert, key, ca, .. }) = tls {
            command.arg("--tls-cert").arg(cert).arg("--tls-key").arg(key).arg("--tls-ca").arg(ca);
        }
        Ok(command)
    }
}

/// The certificates for all nodes, which are made if they are not there yet.
fn certificates(folder: &Path) -> Result<TlsFiles, String> {
    let folder = folder.join("tls");
    let ca = folder.join(certs::CA_CERT);
    if !ca.exists() {
        certs::make_ca(&folder)?;
    }
    let (cert, key) = (folder.join("node.pem"), folder.join("node-key.pem"));
    if !cert.exists() {
        certs::make_node(&folder, "node", &[], DEV_CERT_DAYS)?;
    }
    Ok(TlsFiles { cert, key, ca, client_ca: None })
}

async fn all_ended(nodes: &mut JoinSet<()>) {
    while nodes.join_next().await.is_some() {}
}

/// A failure to print is ignored: the server can be used all the same.
fn greet(welcome: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(welcome.as_bytes()).and_then(|()| out.flush());
}

/// Runs a node until it is time to stop. If it dies, reports that and restarts it, if `restart` is
/// set.
async fn keep(node: u16, mut command: Command, mut stopping: watch::Receiver<bool>, restart: bool) {
    loop {
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                eprint_line!("node {node} does not start: {error}");
                return;
            }
        };
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(pass_on(node, stderr));
        }
        // Taken out, because `Child::wait` closes the child's stdin, and that would stop it.
        let _stdin = child.stdin.take();
        tokio::select! {
            ended = child.wait() => match ended {
                Ok(status) => eprint_line!("node {node} ended: {status}"),
                Err(error) => eprint_line!("node {node} ended: {error}"),
            },
            () = told(&mut stopping) => {
                end(&mut child).await;
                return;
            }
        }
        if !restart {
            return;
        }
        eprint_line!("node {node} starts again in {} s", RESTART_AFTER.as_secs());
        tokio::select! {
            () = sleep(RESTART_AFTER) => {}
            () = told(&mut stopping) => return,
        }
    }
}

async fn told(stopping: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone: time to stop too.
    let _ = stopping.wait_for(|stop| *stop).await;
}

async fn end(child: &mut Child) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // If it has already exited, the error does not matter.
        let _ = kill_process(pid, Signal::TERM);
    }
    if timeout(STOP_TIMEOUT, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// Copies a node's log to stderr, each line prefixed with the node's number.
async fn pass_on(node: u16, stderr: impl AsyncRead + Unpin) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // A slow reader slows the node's logging down, but no line is dropped.
        let _ = writeln!(io::stderr(), "node {node} | {line}");
    }
}
