//! What is measured. Each measurement starts servers of its own.

mod contending;
mod crew;
mod gap;
mod growth;
mod held;
mod looping;
mod pairs;
mod redis;

use crate::clients::{self, By};
use crate::peers::{Cluster, Programs, Setup};
use crate::report::Row;
use clap::ValueEnum;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long everything around the measured time may take: starting servers, connecting.
const AROUND: Duration = Duration::from_secs(240);

/// How long clients work before what they do is written down.
const SETTLE: Duration = Duration::from_secs(1);

/// Clients that warm the servers up.
const WARM_UP_CLIENTS: usize = 64;

/// How long it may take until a million locks are held, on a busy machine and a slow disk.
const FILLING: Duration = Duration::from_secs(900);

/// How long one kill and all around it may take.
const KILL: Duration = Duration::from_secs(90);

/// A number for names of locks that nobody has used yet. Clients that are stopped may leave a lock
/// behind until their session ends: the next ones must not wait for it.
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
}

/// How it is measured.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) programs: Programs,
    pub(crate) by: By,
    /// Where the servers' data goes.
    pub(crate) folder: PathBuf,
    pub(crate) seconds: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) clients: Vec<usize>,
    /// For the variant where clients share connections; none if 0.
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

    /// The same, and has it work for a while: what is compiled while it runs gets fast first.
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
        }
    }

    /// Whether it means anything for these servers.
    pub(crate) fn applies(self, setup: Setup) -> bool {
        match (self, setup) {
            (Self::Pairs | Self::Looping, _) => true,
            // Waiters of Redis and Cassandra poll: with a thousand of them the figure says how often
            // they do. PostgreSQL would need a process for each of two thousand connections.
            (Self::Contending, setup) => {
                !matches!(setup, Setup::Redis { .. } | Setup::Postgres | Setup::Cassandra)
            }
            // Nobody takes over from a single node, and no node of Cassandra leads.
            (Self::Gap, setup) => {
                matches!(setup, Setup::Holdfast { nodes: 3 } | Setup::Etcd | Setup::ZooKeeper)
            }
            (Self::Held | Self::Growth, setup) => setup.is_holdfast(),
            (Self::Redis, setup) => setup.is_holdfast() || matches!(setup, Setup::Redis { .. }),
        }
    }

    /// In how many steps it runs, which must not disturb each other.
    pub(crate) fn steps(self) -> usize {
        if self == Self::Growth { growth::STEPS } else { 1 }
    }

    /// When a step is given up.
    pub(crate) fn limit(self, plan: &Plan) -> Duration {
        let window = SETTLE + plan.seconds;
        AROUND
            + plan.warm_up
            + match self {
                // Each number of clients connects anew, and Holdfast has the variant.
                Self::Pairs => (window + Duration::from_secs(30)) * 2 * plan.clients.len() as u32,
                Self::Looping | Self::Contending => window,
                Self::Gap => KILL * plan.kills as u32,
                Self::Held => FILLING + plan.seconds * held::CPU_LONGER * 2,
                Self::Growth => FILLING + window,
                Self::Redis => redis::limit(plan),
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
        }
    }
}
