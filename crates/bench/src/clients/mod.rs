//! Clients that take and release locks, each with its own connection and session.

pub(crate) mod engine;
mod etcd;
pub(crate) mod holdfast;
pub(crate) mod redis;
pub(crate) mod zookeeper;

use crate::peers::{Setup, Target};
use clap::ValueEnum;
use std::pin::Pin;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The session TTL, the same everywhere. Long, so that there are few heartbeats next to what is
/// measured.
pub(crate) const SESSION_TTL: Duration = Duration::from_secs(30);

/// How many clients connect at a time: more would only wait for each other.
const CONNECT_AT_ONCE: usize = 64;

/// Timeout for connecting: Cassandra's driver creates tables first.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// How clients talk to the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientKind {
    /// Each by the least that its protocol needs: holdfast-client; minimal clients of etcd, ZooKeeper and
    /// Redis; PostgreSQL and Cassandra by the drivers of holdfast-locks
    Bare,
    /// All by the drivers of holdfast-locks
    Drivers,
}

/// The future of an acquire or release.
pub(crate) type Step<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Takes one lock at a time.
pub(crate) trait Client: Send {
    /// Waits until the lock is held.
    fn acquire<'a>(&'a mut self, name: &'a str) -> Step<'a>;

    /// Releases the lock that was acquired last, and waits for the reply.
    fn release(&mut self) -> Step<'_>;
}

/// Connects `count` clients, spread over the nodes.
pub(crate) async fn connect(target: &Target, count: usize) -> Result<Vec<Box<dyn Client>>, String> {
    let mut clients = Vec::with_capacity(count);
    let mut connecting = JoinSet::new();
    for number in 0..count {
        // The first client creates missing tables; several at once would conflict.
        if number == 1 {
            clients.push(connected(&mut connecting).await?);
        }
        if connecting.len() >= CONNECT_AT_ONCE {
            clients.push(connected(&mut connecting).await?);
        }
        let target = target.clone();
        connecting.spawn(async move {
            let client = timeout(CONNECT_TIMEOUT, connect_one(&target, number)).await;
            client.map_err(|_| format!("{}: can't connect", target.setup.name()))?
        });
    }
    while clients.len() < count {
        clients.push(connected(&mut connecting).await?);
    }
    Ok(clients)
}

/// Connects `count` Holdfast clients that share `connections` connections, spread over the nodes.
pub(crate) async fn sharing(
    target: &Target,
    connections: usize,
    count: usize,
) -> Result<Vec<Box<dyn Client>>, String> {
    match target.by {
        ClientKind::Drivers => engine::sharing(target, connections, count).await,
        ClientKind::Bare => {
            let sessions = holdfast::sessions(target, connections).await?;
            Ok(holdfast::sharing(&sessions, count))
        }
    }
}

type Connecting = JoinSet<Result<Box<dyn Client>, String>>;

async fn connected(connecting: &mut Connecting) -> Result<Box<dyn Client>, String> {
    let client = connecting.join_next().await.ok_or("nobody connects any more")?;
    client.map_err(|error| format!("a client failed: {error}"))?
}

async fn connect_one(target: &Target, number: usize) -> Result<Box<dyn Client>, String> {
    let ports = target.ports_from(number);
    if target.by == ClientKind::Drivers {
        return Ok(Box::new(engine::EngineClient::connect(target, number).await?));
    }
    Ok(match target.setup {
        Setup::Holdfast { .. } | Setup::Before { .. } => {
            Box::new(holdfast::Holdfast::new(holdfast::session(&ports).await?))
        }
        Setup::Etcd => Box::new(etcd::Etcd::connect(ports).await?),
        Setup::ZooKeeper => Box::new(zookeeper::ZooKeeper::connect(&ports).await?),
        Setup::Redis { .. } => Box::new(redis::Redis::connect(&ports, number).await?),
        Setup::Postgres | Setup::Cassandra => {
            Box::new(engine::EngineClient::connect(target, number).await?)
        }
    })
}
