//! A few connections, opened on demand.

use super::{CONNECT_TIMEOUT, silent, unreachable};
use crate::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio_postgres::error::{DbError, Severity};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, Socket};

/// PostgreSQL allows 100 by default, for all its clients.
const CONNECTIONS_MAX: usize = 16;

/// Settings of every connection, unless the user or the database has set them:
/// - with `synchronous_commit` off, PostgreSQL acknowledges commits that a crash can still lose;
/// - without a `lock_timeout`, the server would not report that a call's row is locked. It is
///   shorter than the fence's own limit for a call, so that the server answers first.
const SETTINGS: &str = "SELECT
    CASE WHEN current_setting('synchronous_commit') = 'off'
        THEN set_config('synchronous_commit', 'on', false) END,
    CASE WHEN current_setting('lock_timeout') = '0'
        THEN set_config('lock_timeout', '10s', false) END";

type Connecting = Pin<Box<dyn Future<Output = Result<Open, Error>> + Send>>;

pub(super) struct Pool {
    connect: Box<dyn Fn() -> Connecting + Send + Sync>,
    idle: Mutex<Vec<Open>>,
    permits: Arc<Semaphore>,
    store: String,
}

/// An open connection. It is closed at once when this is dropped, whatever the server has yet to
/// send: a silent server would otherwise keep it open forever.
struct Open {
    client: Client,
    warning: Warning,
    task: AbortHandle,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The last warning that the server sent over a connection.
#[derive(Clone, Default)]
pub(super) struct Warning(Arc<Mutex<Option<String>>>);

impl Warning {
    fn set(&self, notice: &DbError) {
        if notice.parsed_severity() == Some(Severity::Warning) || notice.severity() == "WARNING" {
            let detail = notice.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
            let text = format!("{}{detail}", notice.message());
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
        }
    }

    /// The last warning since this was last called.
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A connection for one call. Unless it is given back it is closed, which rolls back whatever the
/// call left unfinished.
pub(super) struct Connection {
    open: Open,
    permit: OwnedSemaphorePermit,
}

impl Connection {
    pub(super) fn client(&mut self) -> &mut Client {
        &mut self.open.client
    }

    pub(super) fn warning(&self) -> Warning {
        self.open.warning.clone()
    }
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
                let (client, mut connection) = config.connect(tls).await.map_err(failed)?;
                let warning = Warning::default();
                let warned = warning.clone();
                // Errors surface in the client's calls. A warning is recorded before the reply that
                // follows it reaches the client.
                let task = tokio::spawn(async move {
                    while let Some(Ok(message)) =
                        std::future::poll_fn(|context| connection.poll_message(context)).await
                    {
                        if let AsyncMessage::Notice(notice) = message {
                            warned.set(&notice);
                        }
                    }
                });
                let open = Open { client, warning, task: task.abort_handle() };
                open.client.batch_execute(SETTINGS).await.map_err(failed)?;
                Ok(open)
            })
        };
        Self {
            connect: Box::new(connect),
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            store,
        }
    }

    /// The server's name for error messages.
    pub(super) fn store(&self) -> &str {
        &self.store
    }

    /// Waits for a free connection or opens one. The caller's timeout limits the wait.
    pub(super) async fn get(&self) -> Result<Connection, Error> {
        let Ok(permit) = self.permits.clone().acquire_owned().await else {
            let source = "its connections are closed".into();
            return Err(Error::Unavailable { store: self.store.clone(), source });
        };
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match idle {
                Some(open) if open.client.is_closed() => {}
                Some(open) => return Ok(Connection { open, permit }),
                None => {
                    let connected = tokio::time::timeout(CONNECT_TIMEOUT, (self.connect)()).await;
                    let open = connected.map_err(|_| silent(&self.store, CONNECT_TIMEOUT))??;
                    return Ok(Connection { open, permit });
                }
            }
        }
    }

    /// The connection must have no open transaction.
    pub(super) fn give_back(&self, connection: Connection) {
        let Connection { open, permit } = connection;
        if !open.client.is_closed() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(open);
        }
        drop(permit);
    }
}
