//! One session: a connection with its own backend process on the server.

use super::errors::{no_answer, statement_error};
use super::server::Server;
use crate::drivers::failure::Failure;
use crate::error::Error;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

/// Identifies the backend of a session. Process ids are reused, so it includes the start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backend {
    pid: i32,
    started_us: i64,
}

/// Closes its connection when dropped.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) backend: Backend,
    server: Server,
    task: AbortHandle,
    ended: watch::Receiver<Option<String>>,
}

/// The role or the database may have other defaults for these.
const SETTINGS: &str = "
    SET default_transaction_isolation = 'read committed';
    SET client_min_messages = 'error';
    SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') IN ('off', 'local');
    SELECT set_config(name, '0', false) FROM pg_settings
        WHERE name IN ('idle_session_timeout', 'transaction_timeout')";

const BACKEND: &str = "
    SELECT pid, (extract(epoch FROM backend_start) * 1000000)::int8
    FROM pg_stat_activity WHERE pid = pg_backend_pid()";

/// Asks a backend to terminate, and returns a row until it has.
const END_BACKEND: &str = "
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid = $1 AND (extract(epoch FROM backend_start) * 1000000)::int8 = $2";

impl Session {
    /// Opens a session that is shown under this label. None of its statements may take longer than
    /// `limit`; `None` means no limit.
    pub(super) async fn open(
        server: &Server,
        label: &str,
        limit: Option<Duration>,
    ) -> Result<Self, Error> {
        let (client, connection) = server.open(label).await?;
        let (ending, ended) = watch::channel(None);
        let task = tokio::spawn(async move {
            let why = match connection.await {
                Ok(()) => "the connection was closed".to_owned(),
                Err(error) => match error.as_db_error() {
                    Some(answer) => format!("the server closed the connection: {answer}"),
                    None => format!("the connection was lost: {error}"),
                },
            };
            ending.send_replace(Some(why));
        });
        let backend = Backend { pid: 0, started_us: 0 };
        let mut session =
            Self { client, backend, server: server.clone(), task: task.abort_handle(), ended };
        let limit_ms = limit.map_or(0, |limit| limit.as_millis());
        let settings = format!(
            "SET statement_timeout = {limit_ms}; SET lock_timeout = {limit_ms}; {SETTINGS}"
        );
        let set_up = async {
            session.client.batch_execute(&settings).await?;
            session.client.query_typed_one(BACKEND, &[]).await
        };
        let row = session.within(set_up).await.map_err(Failure::into_error)?;
        session.backend = Backend { pid: row.get(0), started_us: row.get(1) };
        Ok(session)
    }

    /// Runs a call with the server's time limit. After an ambiguous outcome, the session must not
    /// be used again.
    async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failure> {
        match timeout(self.server.timeout, call).await {
            Ok(answer) => answer.map_err(|error| statement_error(&self.server.name, &error)),
            Err(_) => Err(Failure::Ambiguous(no_answer(&self.server.name, self.server.timeout))),
        }
    }

    pub(super) async fn query<S: ?Sized + tokio_postgres::ToStatement>(
        &self,
        statement: &S,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Failure> {
        self.within(self.client.query(statement, values)).await
    }

    pub(super) async fn execute(&self, sql: &str) -> Result<(), Failure> {
        self.within(self.client.batch_execute(sql)).await
    }

    pub(super) async fn prepare(
        &self,
        sql: &str,
        types: &[Type],
    ) -> Result<tokio_postgres::Statement, Failure> {
        self.within(self.client.prepare_typed(sql, types)).await
    }

    /// Makes sure that another session is over, so that none of its statements takes effect later.
    pub(super) async fn end(&self, other: Backend) -> Result<(), Error> {
        const LOOK_EVERY: Duration = Duration::from_millis(20);
        let (pid, started_us) = (other.pid, other.started_us);
        let ended = async {
            loop {
                let rows = self.query(END_BACKEND, &[&pid, &started_us]).await;
                if rows.map_err(Failure::into_error)?.is_empty() {
                    return Ok(());
                }
                sleep(LOOK_EVERY).await;
            }
        };
        let late = || no_answer(&self.server.name, self.server.timeout);
        timeout(self.server.timeout, ended).await.unwrap_or_else(|_| Err(late()))
    }

    /// Drops the connection without waiting for anything.
    pub(super) fn abort(&self) {
        self.task.abort();
    }

    pub(super) fn is_over(&self) -> bool {
        self.client.is_closed() || self.task.is_finished()
    }

    /// Resolves, with the reason, when the connection has ended.
    pub(super) async fn ended(&self) -> String {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => "the connection was closed".to_owned(),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.abort();
    }
}
