//! A fence in a PostgreSQL database.
//!
//! [`Postgres`] stores values itself. To guard the application's own tables, call [`check`] at the
//! start of the transaction that changes them:
//!
//! ```no_run
//! use holdfast_fence::{Token, postgres};
//!
//! # async fn transfer(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let transaction = client.transaction().await?;
//! postgres::check(&transaction, "accounts/7", Token::exclusive(35)?).await?;
//! transaction.execute("UPDATE accounts SET balance = 40 WHERE id = 7", &[]).await?;
//! transaction.commit().await?;
//! # Ok(()) }
//! ```

mod pool;

use crate::resource_locks::ResourceLocks;
use crate::{
    Error, Fence, FenceFuture, Fenced, Highest, Mode, Refused, Token, check_resource, sql,
};
use bytes::Bytes;
use pool::{Connection, Pool};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{
    Client, Config, GenericClient, IsolationLevel, NoTls, Row, Socket, Transaction,
};

/// The longest that a call may take: waiting for earlier calls, connecting, TLS, and all
/// statements.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest that connecting may take: TCP, TLS, and the server's greeting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How many calls with the same or a later token may wait for one resource.
const CALLERS_MAX: usize = 1_000;
/// How many attempts when the server has closed the connection, or could not serialize.
const ATTEMPTS_MAX: u32 = 5;

/// A fence with its own connections, at most 16. It reconnects if one is lost.
///
/// A resource uses one connection at a time, so a resource that is locked by a transaction
/// elsewhere does not hold up the others. A call waits for that transaction for 10s unless
/// `lock_timeout` is set.
///
/// A call ends after 30s, see [`timeout`](Self::timeout), even if the server accepts connections
/// but never answers: with [`Error::Unknown`] if it was about to commit, and otherwise with an
/// error that says that nothing was written.
///
/// Cancel-safe: a call whose future is dropped may still take effect, but never after a later raise
/// or write of the same resource, by anyone, has returned.
pub struct Postgres {
    pool: Pool,
    locks: Arc<ResourceLocks>,
    timeout: Duration,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Postgres").field(&self.pool.store()).finish()
    }
}

impl Postgres {
    /// Connects without TLS, and creates the fence's table if it is missing.
    ///
    /// `config` is a connection string, for instance `host=10.0.0.7 user=shop dbname=shop`.
    pub async fn connect(config: &str) -> Result<Self, Error> {
        Self::connect_tls(config, NoTls).await
    }

    /// The same with TLS, using a connector such as `tokio_postgres_rustls::MakeRustlsConnect`.
    pub async fn connect_tls<T>(config: &str, tls: T) -> Result<Self, Error>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let parsed = config.parse::<Config>();
        let mut config = parsed.map_err(|error| unreachable("PostgreSQL", &error))?;
        if config.get_connect_timeout().is_none() {
            // This applies to each of its addresses.
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(CONNECT_TIMEOUT);
        }
        let store = described(&config);
        let pool = Pool::new(config, tls, store);
        let open = async {
            let mut connection = pool.get().await?;
            create_table(connection.client()).await?;
            pool.give_back(connection);
            Ok::<(), Error>(())
        };
        match tokio::time::timeout(TIMEOUT, open).await {
            Ok(opened) => opened?,
            Err(_) => return Err(silent(pool.store(), TIMEOUT)),
        }
        Ok(Self { pool, locks: Arc::default(), timeout: TIMEOUT })
    }

    /// Sets the longest that a call may take, whatever the server does: waiting for earlier calls,
    /// connecting, and all statements together. Default: 30s.
    ///
    /// To wait longer for a row that another transaction has locked, raise `lock_timeout` as well,
    /// which defaults to 10s here.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Runs one statement and commits it if it returns a row, which means that the token has
    /// passed.
    ///
    /// The statement locks the fence's row. The commit is sent only after that, and only if the
    /// caller is still waiting. A call that was dropped before is rolled back with its connection;
    /// one that is dropped later still locks others out until the commit.
    async fn run(
        &self,
        resource: &str,
        token: Token,
        statement: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Row, Error> {
        check_resource(resource)?;
        let store = self.pool.store();
        let busy = || Error::Busy {
            resource: resource.into(),
            reason: "earlier calls for it have not ended".into(),
        };
        let ends = Instant::now() + self.timeout;
        let caller = self.locks.join(resource, token, CALLERS_MAX).ok_or_else(busy)?;
        let lock = tokio::time::timeout_at(ends, caller.lock(Mode::Exclusive));
        let _held = lock.await.map_err(|_| busy())?;
        let committing = AtomicBool::new(false);
        let done = self.run_until_done(resource, token, statement, parameters, &committing);
        match tokio::time::timeout_at(ends, done).await {
            Ok(done) => done,
            // The connection has been closed by now. A transaction without a commit is rolled back.
            Err(_) if committing.load(Ordering::Relaxed) => {
                let source = format!("no reply to the commit within {:?}", self.timeout).into();
                Err(Error::Unknown { store: store.into(), source })
            }
            Err(_) => Err(silent(store, self.timeout)),
        }
    }

    async fn run_until_done(
        &self,
        resource: &str,
        token: Token,
        statement: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
        committing: &AtomicBool,
    ) -> Result<Row, Error> {
        let store = self.pool.store();
        let unknown = |source| Err(Error::Unknown { store: store.into(), source });
        let mut attempt = 1;
        loop {
            committing.store(false, Ordering::Relaxed);
            let mut connection = self.pool.get().await?;
            let result =
                run_once(&mut connection, resource, token, statement, parameters, committing).await;
            let again = match &result {
                Err(Failed::BeforeCommit(error)) => {
                    let code = error.code();
                    code.is_some_and(is_conflict) || connection.client().is_closed()
                }
                _ => false,
            };
            self.pool.give_back(connection);
            match result {
                Ok(row) => return Ok(row),
                Err(_) if again && attempt < ATTEMPTS_MAX => attempt += 1,
                Err(Failed::BeforeCommit(error)) => return Err(not_done(store, resource, &error)),
                Err(Failed::InCommit(error)) => return unknown(message(&error).into()),
                Err(Failed::Warned(warning)) => return unknown(warning.into()),
                Err(Failed::Refused(error)) => return Err(error),
            }
        }
    }
}

/// Why a statement was not committed, as far as is known.
enum Failed {
    /// It certainly was not committed.
    BeforeCommit(tokio_postgres::Error),
    /// The commit was sent, and its reply was lost.
    InCommit(tokio_postgres::Error),
    /// It was committed, with a warning: for instance that the server no longer waits for its
    /// synchronous replica, because someone has cancelled that. A failover would lose the commit.
    Warned(String),
    /// The token did not pass.
    Refused(Error),
}

async fn run_once(
    connection: &mut Connection,
    resource: &str,
    token: Token,
    statement: &str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
    committing: &AtomicBool,
) -> Result<Row, Failed> {
    let warning = connection.warning();
    // Set explicitly: with a higher default level, a concurrent call would fail instead of waiting.
    let transaction = connection
        .client()
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .read_only(false)
        .start()
        .await
        .map_err(Failed::BeforeCommit)?;
    let row = transaction.query_typed_opt(statement, parameters).await;
    let Some(row) = row.map_err(Failed::BeforeCommit)? else {
        let refused = refused(&transaction, resource, token).await;
        transaction.rollback().await.map_err(Failed::BeforeCommit)?;
        return Err(Failed::Refused(refused));
    };
    // Only warnings about the commit matter.
    warning.take();
    committing.store(true, Ordering::Relaxed);
    transaction.commit().await.map_err(|error| {
        // A conflict or a violated constraint: rolled back. Other errors may come after the commit,
        // for instance when the server shuts down while it waits for a replica.
        let class = error.code().map(|code| &code.code()[..2]);
        let completion_unknown = error.code() == Some(&SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN);
        match class {
            Some("23" | "40") if !completion_unknown => Failed::BeforeCommit(error),
            _ => Failed::InCommit(error),
        }
    })?;
    match warning.take() {
        None => Ok(row),
        Some(warning) => Err(Failed::Warned(warning)),
    }
}

impl Fence for Postgres {
    fn raise<'a>(&'a self, resource: &'a str, token: Token) -> FenceFuture<'a, Fenced> {
        Box::pin(async move {
            let number = token.bigint();
            let parameters: [(&(dyn ToSql + Sync), Type); 2] =
                [(&resource, Type::TEXT), (&number, Type::INT8)];
            let statement = sql::raise(token.mode());
            fenced(resource, &self.run(resource, token, statement, &parameters).await?)
        })
    }

    fn write<'a>(&'a self, resource: &'a str, token: Token, value: Bytes) -> FenceFuture<'a, ()> {
        Box::pin(async move {
            let (number, value) = (token.bigint(), &value[..]);
            let parameters: [(&(dyn ToSql + Sync), Type); 3] =
                [(&resource, Type::TEXT), (&number, Type::INT8), (&value, Type::BYTEA)];
            self.run(resource, token, sql::write(token.mode()), &parameters).await?;
            Ok(())
        })
    }

    fn read<'a>(&'a self, resource: &'a str) -> FenceFuture<'a, Fenced> {
        Box::pin(async move {
            check_resource(resource)?;
            let found = async {
                let mut connection = self.pool.get().await?;
                let found = read(connection.client(), resource).await;
                self.pool.give_back(connection);
                found.map(Option::unwrap_or_default)
            };
            match tokio::time::timeout(self.timeout, found).await {
                Ok(found) => found,
                Err(_) => Err(silent(self.pool.store(), self.timeout)),
            }
        })
    }
}

/// Creates the fence's table if it is missing.
pub async fn create_table(client: &Client) -> Result<(), Error> {
    let failed = |error| not_done("PostgreSQL", "holdfast_fences", &error);
    // A user without permission to create tables can still use an existing one.
    let there = client.query_one("SELECT to_regclass('holdfast_fences') IS NOT NULL", &[]).await;
    if there.map_err(failed)?.get(0) {
        return Ok(());
    }
    match client.batch_execute(sql::POSTGRES_TABLE).await {
        // IF NOT EXISTS does not cover a concurrent CREATE TABLE.
        Err(error)
            if matches!(
                error.code(),
                Some(&SqlState::UNIQUE_VIOLATION | &SqlState::DUPLICATE_TABLE)
            ) =>
        {
            Ok(())
        }
        created => created.map_err(failed),
    }
}

/// Shows the token inside the application's own transaction. What the transaction changes
/// afterwards is committed only if no later holder has shown its token: the transaction keeps the
/// fence's row locked until it ends, and a later holder waits.
///
/// Call it before anything else in the transaction, and roll back if it fails. With an isolation
/// level of `REPEATABLE READ` or `SERIALIZABLE` it fails with [`Error::Busy`] if another
/// transaction has changed the row: roll back, and run the whole transaction again. A holder that
/// stops inside a transaction blocks the others: set `idle_in_transaction_session_timeout`.
pub async fn check(
    transaction: &Transaction<'_>,
    resource: &str,
    token: Token,
) -> Result<Highest, Error> {
    check_resource(resource)?;
    let number = token.bigint();
    let parameters: [(&(dyn ToSql + Sync), Type); 2] =
        [(&resource, Type::TEXT), (&number, Type::INT8)];
    let row = transaction
        .query_typed_opt(sql::raise(token.mode()), &parameters)
        .await
        .map_err(|error| not_done("PostgreSQL", resource, &error))?;
    match row {
        Some(row) => Ok(fenced(resource, &row)?.highest),
        None => Err(refused(transaction, resource, token).await),
    }
}

async fn read(
    client: &(impl GenericClient + Sync),
    resource: &str,
) -> Result<Option<Fenced>, Error> {
    let row = client.query_typed_opt(sql::READ, &[(&resource, Type::TEXT)]).await;
    let row = row.map_err(|error| not_done("PostgreSQL", resource, &error))?;
    row.map(|row| fenced(resource, &row)).transpose()
}

/// The refusal, with the numbers that the fence has seen.
async fn refused(client: &(impl GenericClient + Sync), resource: &str, token: Token) -> Error {
    match read(client, resource).await {
        Ok(Some(Fenced { highest, .. })) => {
            Refused { resource: resource.into(), shown: token, highest }.into()
        }
        Ok(None) => Error::Damaged {
            resource: resource.into(),
            reason: "its row was deleted while the token was compared".into(),
        },
        Err(error) => error,
    }
}

fn fenced(resource: &str, row: &Row) -> Result<Fenced, Error> {
    let damaged = |error: tokio_postgres::Error| Error::Damaged {
        resource: resource.into(),
        reason: message(&error),
    };
    let column = |index| row.try_get::<_, i64>(index).map_err(damaged);
    let value: Option<Vec<u8>> = row.try_get(2).map_err(damaged)?;
    let highest = sql::highest(resource, column(0)?, column(1)?)?;
    Ok(Fenced { highest, value: value.map(Bytes::from) })
}

fn is_conflict(code: &SqlState) -> bool {
    [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code)
}

/// The server's name for messages, without the password.
fn described(config: &Config) -> String {
    let host = match (config.get_hosts().first(), config.get_hostaddrs().first()) {
        (Some(Host::Tcp(host)), _) => host.clone(),
        #[cfg(unix)]
        (Some(Host::Unix(folder)), _) => folder.display().to_string(),
        (None, Some(address)) => address.to_string(),
        (None, None) => return "PostgreSQL".into(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let database = config.get_dbname().map(|name| format!("/{name}")).unwrap_or_default();
    format!("PostgreSQL at {host}:{port}{database}")
}

fn unreachable(store: &str, error: &tokio_postgres::Error) -> Error {
    Error::Unavailable { store: store.into(), source: message(error).into() }
}

fn silent(store: &str, timeout: Duration) -> Error {
    let source =
        format!("no reply within {timeout:?}, check that it is up and its rows are not locked");
    let source = source.into();
    Error::Unavailable { store: store.into(), source }
}

/// The error for a statement that was not committed: whatever went wrong, it was rolled back.
fn not_done(store: &str, resource: &str, error: &tokio_postgres::Error) -> Error {
    let (store, source) = (store.into(), message(error).into());
    let busy = |reason: &str| Error::Busy { resource: resource.into(), reason: reason.into() };
    match error.code() {
        Some(&SqlState::DISK_FULL | &SqlState::OUT_OF_MEMORY) => Error::Full { store, source },
        Some(&SqlState::PROGRAM_LIMIT_EXCEEDED) => Error::TooLarge { store, source },
        Some(&SqlState::LOCK_NOT_AVAILABLE) => {
            busy("another transaction has kept its row locked for the whole lock_timeout")
        }
        Some(code) if is_conflict(code) => {
            busy("a concurrent transaction has changed its row, and this one must be rolled back")
        }
        _ => Error::Unavailable { store, source },
    }
}

/// `Display` of a server error is only "db error"; its source has the message.
fn message(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}
