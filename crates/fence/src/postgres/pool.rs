//! A few connections, opened when they are needed.

use super::unreachable;
use crate::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, Socket};

/// PostgreSQL allows 100 by default, for all its clients.
const CONNECTIONS_MAX: usize = 16;
/// How long to wait for one of them.
const WAIT: Duration = Duration::from_secs(30);

/// Settings of every connection, unless the user or the database has set them:
/// - with `synchronous_commit` off, PostgreSQL acknowledges commits that a crash can still lose;
/// - without a `lock_timeout`, a transaction that never ends would occupy a connection forever.
const SETTINGS: &str = "SELECT
    CASE WHEN current_setting('synchronous_commit') = 'off'
        THEN set_config('synchronous_commit', 'on', false) END,
    CASE WHEN current_setting('lock_timeout') = '0'
        THEN set_config('lock_timeout', '10s', false) END";

type Connecting = Pin<Box<dyn Future<Output = Result<Client, Error>> + Send>>;

pub(super) struct Pool {
    connect: Box<dyn Fn() -> Connecting + Send + Sync>,
    idle: Mutex<Vec<Client>>,
    permits: Arc<Semaphore>,
    store: String,
}

/// A connection for one call. Unless it is given back it is closed, and with it whatever the call has
/// left unfinished is rolled back.
pub(super) struct Connection {
    pub(super) client: Client,
    permit: OwnedSemaphorePermit,
}

impl Pool {
    pub(super) fn new<T>(config: Config, tls: T, store: String) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let named = store.clone();
        let connect = move || -> Connecting {
            let (config, tls, store) = (config.clone(), tls.clone(), named.clone());
            Box::pin(async move {
                let failed = |error| unreachable(&store, &error);
                let (client, connection) = config.connect(tls).await.map_err(failed)?;
                // It ends with the client, and its errors surface in the client's calls.
                tokio::spawn(async move { drop(connection.await) });
                client.batch_execute(SETTINGS).await.map_err(failed)?;
                Ok(client)
            })
        };
        Self {
            connect: Box::new(connect),
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            store,
        }
    }

    /// What the pool connects to, for error messages.
    pub(super) fn store(&self) -> &str {
        &self.store
    }

    pub(super) async fn get(&self) -> Result<Connection, Error> {
        let permit = tokio::time::timeout(WAIT, self.permits.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            let source = format!("all {CONNECTIONS_MAX} connections of this fence are in use");
            return Err(Error::Unavailable { store: self.store.clone(), source: source.into() });
        };
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match idle {
                Some(client) if client.is_closed() => {}
                Some(client) => return Ok(Connection { client, permit }),
                None => return Ok(Connection { client: (self.connect)().await?, permit }),
            }
        }
    }

    /// For a connection with no transaction open.
    pub(super) fn give_back(&self, connection: Connection) {
        let Connection { client, permit } = connection;
        if !client.is_closed() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        }
        drop(permit);
    }
}
