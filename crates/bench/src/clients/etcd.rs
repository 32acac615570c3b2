//! etcd through its lock service, with a lease per client.

use super::{Client, SESSION_TTL, Step};
use proto::lease_client::LeaseClient;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use v3lock::lock_client::LockClient;

#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
mod proto {
    tonic::include_proto!("etcdserverpb");
}

#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
mod v3lock {
    tonic::include_proto!("v3lockpb");
}

/// Timeout for calls that don't wait for a lock.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause before a lease is renewed through another node.
const RETRY_EVERY: Duration = Duration::from_millis(200);

pub(crate) struct Etcd {
    /// The node in use comes first.
    ports: Vec<u16>,
    locks: LockClient<Channel>,
    lease: i64,
    /// The key that exists as long as the lock is held.
    key: Option<Vec<u8>>,
    keeper: JoinHandle<()>,
}

impl Etcd {
    pub(super) async fn connect(ports: Vec<u16>) -> Result<Self, String> {
        let channel = channel(first(&ports)?)?;
        let ttl = SESSION_TTL.as_secs() as i64;
        let asked = proto::LeaseGrantRequest { ttl, id: 0 };
        let lease = LeaseClient::new(channel.clone()).lease_grant(asked).await;
        let lease = lease.map_err(|status| printed("lease", &status))?.into_inner().id;
        let keeper = tokio::spawn(keep_alive(channel.clone(), ports.clone(), lease));
        Ok(Self { ports, locks: LockClient::new(channel), lease, key: None, keeper })
    }

    /// Switches to the next node after an error.
    fn turn(&mut self) -> Result<(), String> {
        self.ports.rotate_left(1);
        self.locks = LockClient::new(channel(first(&self.ports)?)?);
        Ok(())
    }
}

impl Client for Etcd {
    fn acquire<'a>(&'a mut self, name: &'a str) -> Step<'a> {
        Box::pin(async move {
            let asked = v3lock::LockRequest { name: name.into(), lease: self.lease };
            match self.locks.lock(asked).await {
                Ok(held) => self.key = Some(held.into_inner().key),
                Err(status) => {
                    self.turn()?;
                    return Err(printed("lock", &status));
                }
            }
            Ok(())
        })
    }

    fn release(&mut self) -> Step<'_> {
        Box::pin(async move {
            let key = self.key.take().ok_or("nothing is held")?;
            if let Err(status) = self.locks.unlock(v3lock::UnlockRequest { key }).await {
                self.turn()?;
                return Err(printed("unlock", &status));
            }
            Ok(())
        })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Keeps a lease alive until it is aborted, through another node if one does not answer.
async fn keep_alive(mut channel: Channel, mut ports: Vec<u16>, lease: i64) {
    loop {
        let kept = tokio::time::timeout(REPLY_TIMEOUT, keep_alive_once(&channel, lease)).await;
        if matches!(kept, Ok(Ok(()))) {
            sleep(SESSION_TTL / 3).await;
            continue;
        }
        ports.rotate_left(1);
        if let Ok(another) = first(&ports).and_then(self::channel) {
            channel = another;
        }
        sleep(RETRY_EVERY).await;
    }
}

async fn keep_alive_once(channel: &Channel, lease: i64) -> Result<(), Status> {
    let once = tokio_stream::once(proto::LeaseKeepAliveRequest { id: lease });
    let mut answers = LeaseClient::new(channel.clone()).lease_keep_alive(once).await?.into_inner();
    answers.message().await?;
    Ok(())
}

fn first(ports: &[u16]) -> Result<u16, String> {
    ports.first().copied().ok_or_else(|| "no node was named".to_owned())
}

/// A separate connection, opened on first use.
fn channel(port: u16) -> Result<Channel, String> {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}"));
    let endpoint = endpoint.map_err(|error| error.to_string())?;
    Ok(endpoint.tcp_nodelay(true).connect_lazy())
}

fn printed(what: &str, status: &Status) -> String {
    format!("etcd: {what}: {}: {}", status.code(), status.message())
}
