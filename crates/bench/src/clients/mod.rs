//! One who takes and releases locks, with a connection and a session of its own.

pub(crate) mod etcd;
pub(crate) mod holdfast;
pub(crate) mod redis;
mod zookeeper;

use crate::peers::{Setup, Target};
use std::pin::Pin;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long a client may be silent before its locks are taken away: the same everywhere. Long,
/// so that beats are few beside what is measured.
pub(crate) const SESSION_TTL: Duration = Duration::from_secs(30);

/// How many clients connect at once: more would only wait for each other.
const CONNECT_AT_ONCE: usize = 64;

/// How long one may take to connect.
const CONNECT_PATIENCE: Duration = Duration::from_secs(20);

/// What an acquire or release becomes.
pub(crate) type Step<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Takes one lock at a time.
pub(crate) trait Client: Send {
    /// Waits until the lock is held.
    fn acquire<'a>(&'a mut self, name: &'a str) -> Step<'a>;

    /// Lets go of what was acquired last, and waits for the answer.
    fn release(&mut self) -> Step<'_>;
}

/// So many clients, spread over the nodes.
pub(crate) async fn connect(target: &Target, count: usize) -> Result<Vec<Box<dyn Client>>, String> {
    let mut clients = Vec::with_capacity(count);
    let mut connecting = JoinSet::new();
    for number in 0..count {
        if connecting.len() >= CONNECT_AT_ONCE {
            clients.push(connected(&mut connecting).await?);
        }
        let target = target.clone();
        connecting.spawn(async move {
            let client = timeout(CONNECT_PATIENCE, connect_one(&target, number)).await;
            client.map_err(|_| format!("{}: can't connect", target.setup.name()))?
        });
    }
    while clients.len() < count {
        clients.push(connected(&mut connecting).await?);
    }
    Ok(clients)
}

type Connecting = JoinSet<Result<Box<dyn Client>, String>>;

async fn connected(connecting: &mut Connecting) -> Result<Box<dyn Client>, String> {
    let client = connecting.join_next().await.ok_or("nobody connects any more")?;
    client.map_err(|error| format!("a client failed: {error}"))?
}

async fn connect_one(target: &Target, number: usize) -> Result<Box<dyn Client>, String> {
    let ports = target.ports_from(number);
    Ok(match target.setup {
        Setup::Holdfast { .. } => {
            Box::new(holdfast::Holdfast::new(holdfast::session(&ports).await?))
        }
        Setup::Etcd => Box::new(etcd::Etcd::connect(ports).await?),
        Setup::ZooKeeper => Box::new(zookeeper::ZooKeeper::connect(&ports).await?),
        Setup::Redis { .. } => Box::new(redis::Redis::connect(&ports, number).await?),
    })
}
