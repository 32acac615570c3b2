//! A client of any engine, through the drivers of `holdfast-locks`.

use super::{Client, SESSION_TTL, Step};
use crate::peers::Target;
use holdfast_locks::{Guard, Locks};

pub(crate) struct EngineClient {
    locks: Locks,
    guard: Option<Guard>,
}

impl EngineClient {
    /// A client with this connection, which may be shared with others.
    fn new(locks: Locks) -> Self {
        Self { locks, guard: None }
    }

    /// Client `number`, with its own connection.
    pub(super) async fn connect(target: &Target, number: usize) -> Result<Self, String> {
        Ok(Self::new(connection(target, number).await?))
    }
}

async fn connection(target: &Target, number: usize) -> Result<Locks, String> {
    Locks::connect(&target.url(number)).await.map_err(|error| error.to_string())
}

/// `count` clients that share `connections` connections, spread over the nodes.
pub(crate) async fn sharing(
    target: &Target,
    connections: usize,
    count: usize,
) -> Result<Vec<Box<dyn Client>>, String> {
    let mut shared = Vec::with_capacity(connections);
    for number in 0..connections {
        shared.push(connection(target, number).await?);
    }
    let clients = shared.iter().cycle().take(count);
    Ok(clients.map(|locks| Box::new(EngineClient::new(locks.clone())) as Box<dyn Client>).collect())
}

impl Client for EngineClient {
    fn acquire<'a>(&'a mut self, name: &'a str) -> Step<'a> {
        Box::pin(async move {
            let guard = self.locks.lock(name).ttl(SESSION_TTL).acquire().await;
            self.guard = Some(guard.map_err(|error| format!("acquire: {error}"))?);
            Ok(())
        })
    }

    fn release(&mut self) -> Step<'_> {
        Box::pin(async move {
            let guard = self.guard.take().ok_or("nothing is held")?;
            guard.release().await.map_err(|error| format!("release: {error}"))
        })
    }
}
