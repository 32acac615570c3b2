//! The servers that are measured: started on free ports in a folder of their own, stopped when
//! they are dropped.

mod etcd;
mod holdfast;
mod install;
mod ports;
mod process;
mod redis;
mod zookeeper;

use clap::ValueEnum;
use process::Process;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::time::sleep;

/// How long servers may take until they serve: a JVM on a busy machine is slow.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// How long between two looks at a server that starts.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    Holdfast,
    Etcd,
    Zookeeper,
    Redis,
}

/// Servers as they are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setup {
    Holdfast { nodes: u16 },
    Etcd,
    ZooKeeper,
    Redis { fsync: bool },
}

impl Peer {
    /// How it is run. Holdfast's cluster comes first: the others are set beside it.
    pub(crate) fn setups(self) -> &'static [Setup] {
        match self {
            Self::Holdfast => &[Setup::Holdfast { nodes: 3 }, Setup::Holdfast { nodes: 1 }],
            Self::Etcd => &[Setup::Etcd],
            Self::Zookeeper => &[Setup::ZooKeeper],
            Self::Redis => &[Setup::Redis { fsync: true }, Setup::Redis { fsync: false }],
        }
    }
}

impl Setup {
    /// How it is called in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Holdfast { nodes: 1 } => "holdfast, 1 node",
            Self::Holdfast { .. } => "holdfast, 3 nodes",
            Self::Etcd => "etcd, 3 nodes",
            Self::ZooKeeper => "zookeeper, 3 nodes",
            Self::Redis { fsync: true } => "redis, fsync always",
            Self::Redis { fsync: false } => "redis, in memory",
        }
    }

    pub(crate) fn is_holdfast(self) -> bool {
        matches!(self, Self::Holdfast { .. })
    }

    fn nodes(self) -> u16 {
        match self {
            Self::Holdfast { nodes } => nodes,
            Self::Etcd | Self::ZooKeeper => 3,
            Self::Redis { .. } => 1,
        }
    }
}

/// Where the programs are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Programs {
    /// The `holdfast` binary.
    holdfast: Option<PathBuf>,
    etcd: PathBuf,
    /// A folder of jars.
    zookeeper: PathBuf,
    redis: PathBuf,
}

impl Programs {
    /// With this `holdfast` binary, if one was named.
    pub(crate) fn new(holdfast: Option<PathBuf>) -> Self {
        Self { holdfast, ..Self::default() }
    }

    /// Finds what this peer needs, and builds or downloads what is not there yet.
    pub(crate) async fn prepare(&mut self, peer: Peer) -> Result<(), String> {
        match peer {
            Peer::Holdfast => self.holdfast = Some(holdfast::find(self.holdfast.take())?),
            Peer::Etcd => self.etcd = etcd::build().await?,
            Peer::Zookeeper => self.zookeeper = zookeeper::download().await?,
            Peer::Redis => self.redis = redis::find()?,
        }
        Ok(())
    }
}

/// What clients must know of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) setup: Setup,
    /// The ports for clients, one a node.
    pub(crate) ports: Vec<u16>,
}

impl Target {
    /// All ports, for each client beginning with another one.
    pub(crate) fn ports_from(&self, client: usize) -> Vec<u16> {
        let from = client % self.ports.len().max(1);
        self.ports.iter().cycle().skip(from).take(self.ports.len()).copied().collect()
    }
}

/// Servers that run. Dropping it kills them and removes their data.
pub(crate) struct Cluster {
    pub(crate) target: Target,
    nodes: Vec<Process>,
    // Goes after the processes that write to it.
    _folder: TempDir,
}

impl Cluster {
    /// Starts the servers, with their data in a new folder in `folder`, and waits until they serve.
    pub(crate) async fn start(
        setup: Setup,
        programs: &Programs,
        folder: &Path,
    ) -> Result<Self, String> {
        let made = tempfile::Builder::new().prefix("holdfast-bench-").tempdir_in(folder);
        let folder =
            made.map_err(|error| format!("can't write to {}: {error}", folder.display()))?;
        let place = Place { folder: folder.path(), nodes: setup.nodes() };
        let (ports, nodes) = match setup {
            Setup::Holdfast { .. } => {
                let program = programs.holdfast.as_deref().unwrap_or(Path::new("holdfast"));
                holdfast::nodes(&place, program)?
            }
            Setup::Etcd => etcd::nodes(&place, &programs.etcd)?,
            Setup::ZooKeeper => zookeeper::nodes(&place, &programs.zookeeper)?,
            Setup::Redis { fsync } => redis::nodes(&place, &programs.redis, fsync)?,
        };
        let mut cluster = Self { target: Target { setup, ports }, nodes, _folder: folder };
        for node in &mut cluster.nodes {
            node.start()?;
        }
        cluster.serves().await?;
        Ok(cluster)
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.nodes.iter().filter_map(Process::pid).collect()
    }

    /// The place of the node that leads.
    pub(crate) async fn leader(&self) -> Result<usize, String> {
        let until = Instant::now() + START_PATIENCE;
        while Instant::now() < until {
            for (at, port) in self.target.ports.iter().enumerate() {
                if matches!(self.role(*port).await, Ok(Role::Leads)) {
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

    /// Starts a node that was killed, on its old data, and waits until all serve.
    pub(crate) async fn start_again(&mut self, at: usize) -> Result<(), String> {
        if let Some(node) = self.nodes.get_mut(at) {
            node.start()?;
        }
        self.serves().await
    }

    /// Waits until every node serves.
    async fn serves(&mut self) -> Result<(), String> {
        let until = Instant::now() + START_PATIENCE;
        for (at, port) in self.target.ports.clone().into_iter().enumerate() {
            while let Err(why) = self.role(port).await {
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

    /// What the node behind that port does; an error if it does not serve yet.
    async fn role(&self, port: u16) -> Result<Role, String> {
        match self.target.setup {
            Setup::Holdfast { .. } => holdfast::role(port).await,
            Setup::Etcd => etcd::role(port).await,
            Setup::ZooKeeper => zookeeper::role(port).await,
            Setup::Redis { .. } => redis::role(port).await,
        }
    }
}

/// How many wait in all lines, as Holdfast's first node sees it.
pub(crate) async fn waiters(target: &Target) -> Result<u64, String> {
    holdfast::waiters(target.ports.first().copied().unwrap_or_default()).await
}

/// What a node does in its cluster.
enum Role {
    Leads,
    Follows,
}

/// Where nodes are put.
struct Place<'a> {
    folder: &'a Path,
    nodes: u16,
}

impl Place<'_> {
    /// The folder of a node, made.
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
