//! The servers that are measured: started on free ports in their own folder, stopped when they are
//! dropped.

mod cassandra;
mod etcd;
mod holdfast;
mod http;
mod install;
mod ports;
mod postgres;
mod process;
mod redis;
mod zookeeper;

use crate::clients::ClientKind;
use crate::procfs;
use clap::ValueEnum;
use process::Process;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::time::sleep;

/// How long servers may take to get ready: three JVMs on a busy machine are slow.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// The pause between two checks of a starting server.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    Holdfast,
    Etcd,
    Zookeeper,
    Redis,
    Postgres,
    Cassandra,
}

/// The servers of one measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setup {
    Holdfast {
        nodes: u16,
    },
    /// The older binary of `--before`.
    Before {
        nodes: u16,
    },
    Etcd,
    ZooKeeper,
    Redis {
        fsync: bool,
    },
    Postgres,
    Cassandra,
}

impl Setup {
    /// Its name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Holdfast { nodes: 1 } => "holdfast, 1 node",
            Self::Holdfast { .. } => "holdfast, 3 nodes",
            Self::Before { nodes: 1 } => "before, 1 node",
            Self::Before { .. } => "before, 3 nodes",
            Self::Etcd => "etcd, 3 nodes",
            Self::ZooKeeper => "zookeeper, 3 nodes",
            Self::Redis { fsync: true } => "redis, fsync always",
            Self::Redis { fsync: false } => "redis, in memory",
            Self::Postgres => "postgres, 1 node",
            Self::Cassandra => "cassandra, 3 nodes",
        }
    }

    pub(crate) fn is_holdfast(self) -> bool {
        matches!(self, Self::Holdfast { .. } | Self::Before { .. })
    }

    pub(crate) fn nodes(self) -> u16 {
        match self {
            Self::Holdfast { nodes } | Self::Before { nodes } => nodes,
            Self::Etcd | Self::ZooKeeper | Self::Cassandra => 3,
            Self::Redis { .. } | Self::Postgres => 1,
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Programs {
    /// The `holdfast` binary.
    holdfast: Option<PathBuf>,
    /// An older one, to compare with.
    before: Option<PathBuf>,
    etcd: PathBuf,
    /// The jar that was given.
    zookeeper_jar: Option<PathBuf>,
    /// A class path.
    zookeeper: PathBuf,
    redis: PathBuf,
    /// A folder of programs.
    postgres: PathBuf,
    /// A folder of jars.
    cassandra: PathBuf,
}

impl Programs {
    /// Uses these `holdfast` binaries and this jar of ZooKeeper's, if given.
    pub(crate) fn new(
        holdfast: Option<PathBuf>,
        before: Option<PathBuf>,
        zookeeper_jar: Option<PathBuf>,
    ) -> Self {
        Self { holdfast, before, zookeeper_jar, ..Self::default() }
    }

    /// The ways in which a peer is measured. Holdfast's cluster comes first: the others are
    /// compared to it.
    pub(crate) fn setups(&self, peer: Peer) -> Vec<Setup> {
        match peer {
            Peer::Holdfast if self.before.is_some() => vec![
                Setup::Holdfast { nodes: 3 },
                Setup::Before { nodes: 3 },
                Setup::Holdfast { nodes: 1 },
                Setup::Before { nodes: 1 },
            ],
            Peer::Holdfast => vec![Setup::Holdfast { nodes: 3 }, Setup::Holdfast { nodes: 1 }],
            Peer::Etcd => vec![Setup::Etcd],
            Peer::Zookeeper => vec![Setup::ZooKeeper],
            Peer::Redis => vec![Setup::Redis { fsync: true }, Setup::Redis { fsync: false }],
            Peer::Postgres => vec![Setup::Postgres],
            Peer::Cassandra => vec![Setup::Cassandra],
        }
    }

    /// Finds the programs that this peer needs, and builds or downloads what is missing.
    pub(crate) async fn prepare(&mut self, peer: Peer) -> Result<(), String> {
        match peer {
            Peer::Holdfast => {
                self.holdfast = Some(holdfast::find(self.holdfast.take())?);
                self.before =
                    self.before.take().map(|old| holdfast::find(Some(old))).transpose()?;
            }
            Peer::Etcd => self.etcd = etcd::build().await?,
            Peer::Zookeeper => {
                self.zookeeper = zookeeper::class_path(self.zookeeper_jar.clone()).await?;
            }
            Peer::Redis => self.redis = redis::find()?,
            Peer::Postgres => self.postgres = postgres::find()?,
            Peer::Cassandra => self.cassandra = cassandra::download().await?,
        }
        Ok(())
    }
}

/// What clients need to know about a cluster.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) setup: Setup,
    /// The client ports, one per node.
    pub(crate) ports: Vec<u16>,
    pub(crate) by: ClientKind,
}

impl Target {
    /// All ports, starting with a different one for each client.
    pub(crate) fn ports_from(&self, client: usize) -> Vec<u16> {
        let from = client % self.ports.len().max(1);
        self.ports.iter().cycle().skip(from).take(self.ports.len()).copied().collect()
    }

    /// The URL for `holdfast-locks`, starting with a different node for each client.
    pub(crate) fn url(&self, client: usize) -> String {
        let host = |at: usize, port: &u16| match self.setup {
            Setup::Cassandra => format!("{}:{port}", cassandra::address(at)),
            _ => format!("127.0.0.1:{port}"),
        };
        let mut hosts: Vec<String> =
            self.ports.iter().enumerate().map(|(at, port)| host(at, port)).collect();
        hosts.rotate_left(client % self.ports.len().max(1));
        let hosts = hosts.join(",");
        match self.setup {
            Setup::Holdfast { .. } | Setup::Before { .. } => format!("holdfast://{hosts}"),
            Setup::Etcd => format!("etcd://{hosts}"),
            Setup::ZooKeeper => format!("zookeeper://{hosts}"),
            Setup::Redis { .. } => format!("redis://{hosts}"),
            Setup::Postgres => format!("postgres://bench@{hosts}/postgres?sslmode=disable"),
            Setup::Cassandra => format!("cassandra://{hosts}/bench?replication_factor=3"),
        }
    }
}

/// Running servers. Dropping this kills them and removes their data.
pub(crate) struct Cluster {
    pub(crate) target: Target,
    nodes: Vec<Process>,
    // Dropped after the processes that write to it.
    _folder: TempDir,
}

impl Cluster {
    /// Starts the servers, with their data in a new folder inside `folder`, and waits until they
    /// are ready.
    pub(crate) async fn start(
        setup: Setup,
        programs: &Programs,
        folder: &Path,
        by: ClientKind,
    ) -> Result<Self, String> {
        let made = tempfile::Builder::new().prefix("holdfast-bench-").tempdir_in(folder);
        let folder =
            made.map_err(|error| format!("can't write to {}: {error}", folder.display()))?;
        let place = Place { folder: folder.path(), nodes: setup.nodes() };
        let (ports, nodes) = match setup {
            Setup::Holdfast { .. } | Setup::Before { .. } => {
                let before = matches!(setup, Setup::Before { .. });
                let program = if before { &programs.before } else { &programs.holdfast };
                holdfast::nodes(&place, program.as_deref().unwrap_or(Path::new("holdfast")))?
            }
            Setup::Etcd => etcd::nodes(&place, &programs.etcd)?,
            Setup::ZooKeeper => zookeeper::nodes(&place, &programs.zookeeper)?,
            Setup::Redis { fsync } => redis::nodes(&place, &programs.redis, fsync)?,
            Setup::Postgres => postgres::nodes(&place, &programs.postgres)?,
            Setup::Cassandra => cassandra::nodes(&place, &programs.cassandra)?,
        };
        let mut cluster = Self { target: Target { setup, ports, by }, nodes, _folder: folder };
        for node in &mut cluster.nodes {
            node.start()?;
        }
        cluster.serves().await?;
        Ok(cluster)
    }

    /// All current processes of the servers: PostgreSQL has one for each connection.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let nodes = self.nodes.iter().filter_map(Process::pid);
        nodes.flat_map(|pid| [vec![pid], procfs::children(pid)].concat()).collect()
    }

    /// The index of the leader.
    pub(crate) async fn leader(&self) -> Result<usize, String> {
        let until = Instant::now() + START_TIMEOUT;
        while Instant::now() < until {
            for at in 0..self.target.ports.len() {
                if matches!(self.role(at).await, Ok(Role::Leads)) {
                    return Ok(at);
                }
            }
            sleep(LOOK_EVERY).await;
        }
        Err(format!("{}: no node leads", self.target.setup.name()))
    }

    /// kill -9
    pub(crate) fn kill(&mut self, at: usize) {
        if let Some(node) = self.nodes.get_mut(at) {
            node.kill();
        }
    }

    /// Restarts a node that was killed, with its old data, and waits until all are ready.
    pub(crate) async fn start_again(&mut self, at: usize) -> Result<(), String> {
        if let Some(node) = self.nodes.get_mut(at) {
            node.start()?;
        }
        self.serves().await
    }

    /// Waits until every node is ready.
    async fn serves(&mut self) -> Result<(), String> {
        let until = Instant::now() + START_TIMEOUT;
        for at in 0..self.target.ports.len() {
            while let Err(why) = self.role(at).await {
                if let Some(ended) = self.nodes.get_mut(at).and_then(Process::ended) {
                    return Err(ended);
                }
                if Instant::now() > until {
                    let name = self.target.setup.name();
                    return Err(format!("{name}: node {} does not serve: {why}", at + 1));
                }
                sleep(LOOK_EVERY).await;
            }
        }
        Ok(())
    }

    /// The role of the node with this index; an error if it is not ready yet.
    async fn role(&self, at: usize) -> Result<Role, String> {
        let port = self.target.ports.get(at).copied().unwrap_or_default();
        match self.target.setup {
            Setup::Holdfast { .. } | Setup::Before { .. } => holdfast::role(port).await,
            Setup::Etcd => etcd::role(port).await,
            Setup::ZooKeeper => zookeeper::role(port).await,
            Setup::Redis { .. } => redis::role(port).await,
            Setup::Postgres => postgres::role(port).await,
            Setup::Cassandra => cassandra::role(at, port).await,
        }
    }
}

/// How many tickets are waiting in all lines, according to Holdfast's first node.
pub(crate) async fn waiters(target: &Target) -> Result<u64, String> {
    holdfast::waiters(target.ports.first().copied().unwrap_or_default()).await
}

enum Role {
    Leads,
    Follows,
}

/// Where the nodes' files go.
struct Place<'a> {
    folder: &'a Path,
    nodes: u16,
}

impl Place<'_> {
    /// The folder of a node, created.
    fn node(&self, id: u16) -> Result<PathBuf, String> {
        let folder = self.folder.join(format!("node-{id}"));
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("can't make {}: {error}", folder.display()))?;
        Ok(folder)
    }

    fn write(&self, file: &Path, text: &str) -> Result<(), String> {
        std::fs::write(file, text)
            .map_err(|error| format!("can't write {}: {error}", file.display()))
    }
}
