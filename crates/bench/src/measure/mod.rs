//! What is measured. Each measurement starts its own servers.

mod contending;
mod gap;
mod growth;
mod held;
mod looping;
mod pairs;
mod redis;
mod workers;
mod zookeeper;

use crate::clients::{self, ClientKind};
use crate::peers::{Cluster, Programs, Setup};
use crate::report::Row;
use clap::ValueEnum;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long everything but the measured time may take: starting servers, connecting.
const AROUND: Duration = Duration::from_secs(240);

/// How long clients work before anything is recorded.
const SETTLE: Duration = Duration::from_secs(1);

/// Clients that warm the servers up.
const WARM_UP_CLIENTS: usize = 64;

/// How long it may take until a million locks are held, on a busy machine with a slow disk.
const FILLING: Duration = Duration::from_secs(900);

/// How long one kill and everything around it may take.
const KILL: Duration = Duration::from_secs(90);

/// A number for the name of a lock that was never used before. Clients that are stopped may leave a
/// lock behind until their session ends: the next ones must not wait for it.
fn fresh() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Measure {
    /// Acquire and release, each client on a lock of its own
    Pairs,
    /// 16 clients looping on one lock
    Looping,
    /// A thousand clients waiting for one lock
    Contending,
    /// How long no lock can be taken after the leader was killed
    Gap,
    /// Memory and CPU of locks that are held (Holdfast only)
    Held,
    /// Whether speed depends on how much there is (Holdfast only)
    Growth,
    /// The Redis door, by redis-benchmark and by lock pairs (Holdfast and Redis only)
    Redis,
    /// The ZooKeeper door, by ZooKeeper's client: pairs, and 16 looping (Holdfast and ZooKeeper only)
    Zookeeper,
}

/// The parameters of a run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) programs: Programs,
    pub(crate) by: ClientKind,
    /// Where the servers' data goes.
    pub(crate) folder: PathBuf,
    pub(crate) seconds: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) clients: Vec<usize>,
    /// For the variant in which clients share connections; 0 for none.
    pub(crate) connections: usize,
    pub(crate) contenders: usize,
    pub(crate) kills: usize,
    pub(crate) held_locks: usize,
    pub(crate) existing_locks: usize,
    pub(crate) waiters: usize,
}

impl Plan {
    async fn start(&self, setup: Setup) -> Result<Cluster, String> {
        Cluster::start(setup, &self.programs, &self.folder, self.by).await
    }

    /// The same, and puts load on it for a while: JIT compilers must warm up first.
    async fn start_warm(&self, setup: Setup) -> Result<Cluster, String> {
        let cluster = self.start(setup).await?;
        if !self.warm_up.is_zero() {
            let clients = clients::connect(&cluster.target, WARM_UP_CLIENTS).await?;
            pairs::work(clients).pass(self.warm_up).await?;
        }
        Ok(cluster)
    }
}

impl Measure {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pairs => "pairs",
            Self::Looping => "looping",
            Self::Contending => "contending",
            Self::Gap => "gap",
            Self::Held => "held",
            Self::Growth => "growth",
            Self::Redis => "redis",
            Self::Zookeeper => "zookeeper",
        }
    }

    /// Whether it means anything for this setup.
    pub(crate) fn applies(self, setup: Setup) -> bool {
        match (self, setup) {
            (Self::Pairs | Self::Looping, _) => true,
            // Waiters of Redis and Cassandra poll: with a thousand of them the figure would say how
            // often they do. PostgreSQL would need a process for each of two thousand connections.
            (Self::Contending, setup) => {
                !matches!(setup, Setup::Redis { .. } | Setup::Postgres | Setup::Cassandra)
            }
            // A single node has no one to fail over to, and Cassandra has no leader.
            (Self::Gap, setup) => {
                let three = setup.is_holdfast() && setup.nodes() == 3;
                three || matches!(setup, Setup::Etcd | Setup::ZooKeeper)
            }
            (Self::Held | Self::Growth, setup) => setup.is_holdfast(),
            (Self::Redis, setup) => setup.is_holdfast() || matches!(setup, Setup::Redis { .. }),
            (Self::Zookeeper, setup) => setup.is_holdfast() || setup == Setup::ZooKeeper,
        }
    }

    /// The number of steps, which must not disturb each other.
    pub(crate) fn steps(self) -> usize {
        if self == Self::Growth { growth::STEPS } else { 1 }
    }

    /// The time limit of a step.
    pub(crate) fn limit(self, plan: &Plan) -> Duration {
        let window = SETTLE + plan.seconds;
        AROUND
            + plan.warm_up
            + match self {
                // Clients reconnect for each number of clients, and Holdfast also has the variant.
                Self::Pairs => (window + Duration::from_secs(30)) * 2 * plan.clients.len() as u32,
                Self::Looping | Self::Contending => window,
                Self::Gap => KILL * plan.kills as u32,
                Self::Held => FILLING + plan.seconds * held::CPU_LONGER * 2,
                Self::Growth => FILLING + window,
                Self::Redis => redis::limit(plan),
                Self::Zookeeper => zookeeper::limit(plan),
            }
    }

    pub(crate) async fn run(
        self,
        setup: Setup,
        plan: &Plan,
        step: usize,
    ) -> Result<Vec<Row>, String> {
        match self {
            Self::Pairs => pairs::run(setup, plan).await,
            Self::Looping => looping::run(setup, plan).await,
            Self::Contending => contending::run(setup, plan).await,
            Self::Gap => gap::run(setup, plan).await,
            Self::Held => held::run(setup, plan).await,
            Self::Growth => growth::run(setup, plan, step).await,
            Self::Redis => redis::run(setup, plan).await,
            Self::Zookeeper => zookeeper::run(setup, plan).await,
        }
    }
}
