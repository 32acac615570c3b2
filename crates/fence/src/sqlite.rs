//! A fence in an SQLite database.
//!
//! [`Sqlite`] stores values itself. To guard the application's own tables, call [`check`] at the start
//! of the transaction that changes them:
//!
//! ```
//! use holdfast_fence::{Error, Token, sqlite};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut connection = rusqlite::Connection::open_in_memory()?;
//! # connection.execute_batch("CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER)")?;
//! sqlite::create_table(&connection)?;
//!
//! let transaction = connection.transaction()?;
//! sqlite::check(&transaction, "accounts/7", Token::exclusive(35)?)?;
//! transaction.execute("UPDATE accounts SET balance = 40 WHERE id = 7", [])?;
//! transaction.commit()?;
//! # Ok(()) }
//! ```

use crate::{Error, Fence, FenceFuture, Fenced, Highest, Refused, Token, check_resource, sql};
use bytes::Bytes;
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, Row, Transaction, TransactionBehavior, params_from_iter};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long to wait while another process writes to the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// A fence with a connection of its own.
///
/// Its methods must be called from a tokio runtime: SQLite blocks, and so runs on a thread for
/// blocking work. Cancel-safe: a call whose future is dropped may still take effect, but never after a
/// later raise or write, by anyone, has returned.
#[derive(Debug, Clone)]
pub struct Sqlite {
    connection: Arc<Mutex<Connection>>,
}

impl Sqlite {
    /// Opens the database, creating it and the fence's table if they are missing.
    ///
    /// It must be a file: in memory, each connection has a database of its own, and a restart forgets
    /// the tokens.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let connection = Connection::open(path)
            .map_err(|error| failed(format!("the SQLite database {}", path.display()), error))?;
        let failed = |error| failed(store(&connection), error);
        let journal: String =
            connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(failed)?;
        if connection.path().is_none_or(str::is_empty) || journal == "memory" {
            let reason =
                "no other connection sees its tokens, and a restart forgets them: open a file";
            let store = "an SQLite database in memory".into();
            return Err(Error::Unsupported { store, reason: reason.into() });
        }
        connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
        // What a fence has acknowledged must survive a power failure.
        connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
        create_table(&connection)?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)) })
    }

    /// Runs the work in a transaction that holds the database's write lock.
    ///
    /// Whether it commits is decided once it has that lock: not if the caller has dropped its future by
    /// then. If the future is dropped later, other writers are still locked out until the commit.
    async fn write_locked<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let caller = Arc::new(());
        let waits = Arc::downgrade(&caller);
        let result = self
            .run(move |connection| {
                let failed = |error| failed(store(connection), error);
                let immediate = TransactionBehavior::Immediate;
                let transaction =
                    Transaction::new_unchecked(connection, immediate).map_err(failed)?;
                if waits.strong_count() == 0 {
                    let source = "the caller no longer waits".into();
                    return Err(Error::Unavailable { store: store(connection), source });
                }
                let result = work(&transaction)?;
                match transaction.commit() {
                    Ok(()) => Ok(result),
                    // The disk may have failed before the commit or after it.
                    Err(error) if error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) => {
                        Err(Error::Unknown { store: store(connection), source: error.into() })
                    }
                    Err(error) => Err(failed(error)),
                }
            })
            .await;
        drop(caller);
        result
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let connection = self.connection.clone();
        let work = move || work(&connection.lock().unwrap_or_else(PoisonError::into_inner));
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(stopped) => Err(Error::Unknown { store: "SQLite".into(), source: stopped.into() }),
        }
    }
}

impl Fence for Sqlite {
    fn raise<'a>(&'a self, resource: &'a str, token: Token) -> FenceFuture<'a, Fenced> {
        let resource = resource.to_owned();
        Box::pin(self.write_locked(move |connection| raise(connection, &resource, token)))
    }

    fn write<'a>(&'a self, resource: &'a str, token: Token, value: Bytes) -> FenceFuture<'a, ()> {
        let resource = resource.to_owned();
        Box::pin(self.write_locked(move |connection| {
            check_resource(&resource)?;
            let parameters: [Value; 3] =
                [resource.clone().into(), token.bigint().into(), value.to_vec().into()];
            let passed = first_row(connection, sql::write(token.mode()), &parameters, |_| Ok(()))?;
            passed.ok_or_else(|| refused(connection, &resource, token))
        }))
    }

    fn read<'a>(&'a self, resource: &'a str) -> FenceFuture<'a, Fenced> {
        let resource = resource.to_owned();
        Box::pin(self.run(move |connection| {
            check_resource(&resource)?;
            Ok(read(connection, &resource)?.unwrap_or_default())
        }))
    }
}

/// Creates the fence's table if it is missing.
pub fn create_table(connection: &Connection) -> Result<(), Error> {
    let created = connection.execute_batch(sql::SQLITE_TABLE);
    created.map_err(|error| failed(store(connection), error))
}

/// Shows the token inside the application's own transaction. What the transaction changes afterwards
/// is committed only if no later holder has shown its token, and no other writer gets in between.
///
/// Call it before anything else in the transaction, and roll back if it fails.
pub fn check(
    transaction: &Transaction<'_>,
    resource: &str,
    token: Token,
) -> Result<Highest, Error> {
    Ok(raise(transaction, resource, token)?.highest)
}

fn raise(connection: &Connection, resource: &str, token: Token) -> Result<Fenced, Error> {
    check_resource(resource)?;
    let parameters: [Value; 2] = [resource.to_owned().into(), token.bigint().into()];
    first_row(connection, sql::raise(token.mode()), &parameters, fenced)?
        .ok_or_else(|| refused(connection, resource, token))
}

fn read(connection: &Connection, resource: &str) -> Result<Option<Fenced>, Error> {
    first_row(connection, sql::READ, &[resource.to_owned().into()], fenced)
}

/// The first row, once the statement has run to completion: it commits, or fails to, on its last step.
fn first_row<T>(
    connection: &Connection,
    sql: &str,
    parameters: &[Value],
    of: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>, Error> {
    let run = || {
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query(params_from_iter(parameters))?;
        let first = rows.next()?.map(&of).transpose()?;
        while rows.next()?.is_some() {}
        Ok(first)
    };
    run().map_err(|error| failed(store(connection), error))
}

/// The refusal, with what the fence has seen.
fn refused(connection: &Connection, resource: &str, token: Token) -> Error {
    match read(connection, resource) {
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

fn fenced(row: &Row<'_>) -> rusqlite::Result<Fenced> {
    let value: Option<Vec<u8>> = row.get(2)?;
    Ok(Fenced { highest: sql::highest(row.get(0)?, row.get(1)?), value: value.map(Bytes::from) })
}

fn store(connection: &Connection) -> String {
    format!("the SQLite database {}", connection.path().unwrap_or_default())
}

/// For whatever fails before its transaction is committed: nothing was written.
fn failed(store: String, error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::OutOfMemory) => {
            Error::Full { store, source: error.into() }
        }
        Some(ErrorCode::TooBig) => Error::TooLarge { store, source: error.into() },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            let source = format!("{error}: another process has not finished its transaction");
            Error::Unavailable { store, source: source.into() }
        }
        _ => Error::Unavailable { store, source: error.into() },
    }
}
