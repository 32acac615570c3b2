//! Connections come in: how many there may be, and how long they may take to say the password.

use super::connection::Connection;
use super::door::Door;
use super::words;
use crate::metrics::Metrics;
use crate::sockets::{self, hold_on, prepare};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Connections beyond the bound that are told so at the same time; others are just closed.
const REFUSED_MAX: usize = 64;

/// What connections may do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) connections_max: usize,
    /// How long a client may take to say the password.
    pub(super) password_patience: Duration,
}

impl Bounds {
    /// As many connections as this process may have.
    pub(super) fn of_process() -> Self {
        let connections_max = sockets::connections_max();
        Self { connections_max, password_patience: Duration::from_secs(30) }
    }
}

/// Serves until the task is dropped, and every connection with it.
pub(super) async fn serve(
    listener: TcpListener,
    door: Arc<Door>,
    bounds: Bounds,
) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(bounds.connections_max));
    let refusals = Arc::new(Semaphore::new(REFUSED_MAX));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                hold_on(&error).await;
                continue;
            }
        };
        let metrics = &door.api.metrics;
        if let Ok(permit) = room.clone().try_acquire_owned() {
            prepare(&stream);
            let counted = Counted::new(metrics.clone(), permit);
            let connection = Connection::new(door.clone(), stream);
            connections.spawn(async move {
                connection.talk(bounds.password_patience).await;
                drop(counted);
            });
        } else {
            metrics.redis_connections_refused.inc();
            if let Ok(permit) = refusals.clone().try_acquire_owned() {
                connections.spawn(refuse(stream, permit));
            }
        }
    }
}

/// A connection that counts as long as this lives.
struct Counted {
    metrics: Arc<Metrics>,
    _permit: OwnedSemaphorePermit,
}

impl Counted {
    fn new(metrics: Arc<Metrics>, permit: OwnedSemaphorePermit) -> Self {
        metrics.redis_connections.inc();
        Self { metrics, _permit: permit }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.metrics.redis_connections.dec();
    }
}

async fn refuse(mut stream: TcpStream, _permit: OwnedSemaphorePermit) {
    let tell = async {
        stream.write_all(words::TOO_MANY).await?;
        stream.shutdown().await
    };
    let _ = timeout(Duration::from_secs(1), tell).await;
}
