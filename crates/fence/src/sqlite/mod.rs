//! A fence in an SQLite database.
//!
//! [`Sqlite`] stores values itself. To guard the application's own tables, call [`check`] at the
//! start of the transaction that changes them:
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

mod table;

pub use table::create_table;

use crate::{Error, Fence, FenceFuture, Fenced, Highest, Refused, Token, check_resource, sql};
use bytes::Bytes;
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, Row, Transaction, TransactionBehavior, params_from_iter};
use std::path::Path;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// The longest that a call may wait for others: earlier calls and other processes together.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest pause before SQLite tries for its lock again.
const PAUSE_MS_MAX: u64 = 100;

/// A fence with its own connection.
///
/// Its methods must be called from a tokio runtime: SQLite blocks, so it runs on a thread for
/// blocking work. A call waits for others for at most 30s, and then fails with [`Error::Busy`].
/// Cancel-safe: a call whose future is dropped may still take effect, but never after a later raise
/// or write, by anyone, has returned.
#[derive(Debug, Clone)]
pub struct Sqlite {
    connection: Arc<Mutex<Connection>>,
    /// When the call that is using the connection gives up.
    deadline: Deadline,
}

impl Sqlite {
    /// Opens the database, creating it and the fence's table if they are missing.
    ///
    /// It must be a file: in memory, each connection has its own database, and a restart forgets
    /// the tokens. A table of an earlier version is upgraded, see [`create_table`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let mut connection = Connection::open(path)
            .map_err(|error| failed(format!("the SQLite database {}", path.display()), error))?;
        let deadline = Deadline::default();
        let handler = deadline.clone();
        let set = connection.busy_handler(Some(move |tries| handler.wait(tries)));
        let failed = |error| failed(store(&connection), error);
        set.map_err(failed)?;
        deadline.set(Instant::now() + TIMEOUT);
        let journal: String =
            connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(failed)?;
        if connection.path().is_none_or(str::is_empty) || journal == "memory" {
            let reason =
                "no other connection sees its tokens, and a restart forgets them: open a file";
            let store = "an SQLite database in memory".into();
            return Err(Error::Unsupported { store, reason: reason.into() });
        }
        create_table(&connection)?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)), deadline })
    }

    /// Runs `work` in a transaction that holds the database's write lock.
    ///
    /// Whether it commits is decided once it has that lock: not if the caller has dropped its
    /// future by then. If the future is dropped later, other writers are still locked out until the
    /// commit.
    async fn write_locked<T: Send + 'static>(
        &self,
        resource: &str,
        work: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let caller = Arc::new(());
        let waits = Arc::downgrade(&caller);
        let result = self
            .run(resource, move |connection| {
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
                    Err(error) if is_rolled_back(&error) => Err(failed(error)),
                    // The disk, for instance, may have failed before or after the commit.
                    Err(error) => {
                        Err(Error::Unknown { store: store(connection), source: error.into() })
                    }
                }
            })
            .await;
        drop(caller);
        result
    }

    /// Runs `work` on the connection, for as long as the call's deadline allows.
    async fn run<T: Send + 'static>(
        &self,
        resource: &str,
        work: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        check_resource(resource)?;
        let ends = Instant::now() + TIMEOUT;
        let turn = self.connection.clone().lock_owned();
        let Ok(connection) = tokio::time::timeout_at(ends.into(), turn).await else {
            let reason = format!("earlier calls of this process have not ended after {TIMEOUT:?}");
            return Err(Error::Busy { resource: resource.into(), reason });
        };
        self.deadline.set(ends);
        let work = move || work(&connection);
        match tokio::task::spawn_blocking(work).await {
            Ok(Err(Error::Busy { reason, .. })) => {
                Err(Error::Busy { resource: resource.into(), reason })
            }
            Ok(result) => result,
            Err(stopped) => Err(Error::Unknown { store: "SQLite".into(), source: stopped.into() }),
        }
    }
}

/// One deadline for all the locks that a call waits for. SQLite's own `busy_timeout` starts over
/// with each statement.
#[derive(Debug, Clone, Default)]
struct Deadline(Arc<StdMutex<Option<Instant>>>);

impl Deadline {
    fn set(&self, ends: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(ends);
    }

    /// Waits before the next attempt. `false` means that there is no time for another.
    fn wait(&self, tries: i32) -> bool {
        let ends = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = ends.map(|ends| ends.saturating_duration_since(Instant::now()));
        let Some(left) = left.filter(|left| !left.is_zero()) else { return false };
        let pause_ms = (1 << tries.clamp(0, 10)).min(PAUSE_MS_MAX);
        std::thread::sleep(left.min(Duration::from_millis(pause_ms)));
        true
    }
}

impl Fence for Sqlite {
    fn raise<'a>(&'a self, resource: &'a str, token: Token) -> FenceFuture<'a, Fenced> {
        let name = resource.to_owned();
        let work = move |connection: &Connection| raise(connection, &name, token);
        Box::pin(self.write_locked(resource, work))
    }

    fn write<'a>(&'a self, resource: &'a str, token: Token, value: Bytes) -> FenceFuture<'a, ()> {
        let name = resource.to_owned();
        Box::pin(self.write_locked(resource, move |connection| {
            let parameters: [Value; 3] =
                [name.clone().into(), token.bigint().into(), value.to_vec().into()];
            let passed = first_row(connection, sql::write(token.mode()), &parameters)?;
            passed.map(drop).ok_or_else(|| refused(connection, &name, token))
        }))
    }

    fn read<'a>(&'a self, resource: &'a str) -> FenceFuture<'a, Fenced> {
        let name = resource.to_owned();
        Box::pin(
            self.run(resource, move |connection| Ok(read(connection, &name)?.unwrap_or_default())),
        )
    }
}

/// Shows the token inside the application's own transaction. What the transaction changes
/// afterwards is committed only if no later holder has shown its token, and no other writer gets in
/// between.
///
/// Call it before anything else in the transaction, and roll back if it fails. The connection must
/// commit durably, with `PRAGMA synchronous = EXTRA` (as [`create_table`] sets it), or with `FULL`
/// in WAL mode: otherwise a power failure makes the fence forget tokens, so it fails with
/// [`Error::Unsupported`].
pub fn check(
    transaction: &Transaction<'_>,
    resource: &str,
    token: Token,
) -> Result<Highest, Error> {
    check_resource(resource)?;
    table::check_durable(transaction)?;
    Ok(raise(transaction, resource, token)?.highest)
}

fn raise(connection: &Connection, resource: &str, token: Token) -> Result<Fenced, Error> {
    let parameters: [Value; 2] = [resource.to_owned().into(), token.bigint().into()];
    match first_row(connection, sql::raise(token.mode()), &parameters)? {
        Some(row) => fenced(resource, row),
        None => Err(refused(connection, resource, token)),
    }
}

fn read(connection: &Connection, resource: &str) -> Result<Option<Fenced>, Error> {
    let row = first_row(connection, sql::READ, &[resource.to_owned().into()])?;
    row.map(|row| fenced(resource, row)).transpose()
}

/// The first row, once the statement has run to completion: it commits, or fails to, on its last
/// step.
fn first_row(
    connection: &Connection,
    sql: &str,
    parameters: &[Value],
) -> Result<Option<Vec<Value>>, Error> {
    let columns = |row: &Row<'_>| {
        (0..row.as_ref().column_count()).map(|index| row.get(index)).collect::<Result<_, _>>()
    };
    let run = || {
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query(params_from_iter(parameters))?;
        let first = rows.next()?.map(columns).transpose()?;
        while rows.next()?.is_some() {}
        Ok(first)
    };
    run().map_err(|error| failed(store(connection), error))
}

/// The refusal, with the numbers that the fence has seen.
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

fn fenced(resource: &str, row: Vec<Value>) -> Result<Fenced, Error> {
    let (highest, value) = match &row[..] {
        [Value::Integer(exclusive), Value::Integer(any), value] => {
            (sql::highest(resource, *exclusive, *any)?, value)
        }
        _ => return Err(damaged(resource, "its tokens are not numbers")),
    };
    let value = match value {
        Value::Null => None,
        Value::Blob(bytes) => Some(Bytes::copy_from_slice(bytes)),
        Value::Text(text) => Some(Bytes::copy_from_slice(text.as_bytes())),
        Value::Integer(_) | Value::Real(_) => {
            return Err(damaged(resource, "its value is a number"));
        }
    };
    Ok(Fenced { highest, value })
}

fn damaged(resource: &str, reason: &str) -> Error {
    Error::Damaged { resource: resource.into(), reason: reason.into() }
}

fn store(connection: &Connection) -> String {
    format!("the SQLite database {}", connection.path().unwrap_or_default())
}

/// The error for a failure before the transaction is committed: nothing was written.
fn failed(store: String, error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::OutOfMemory) => {
            Error::Full { store, source: error.into() }
        }
        Some(ErrorCode::TooBig) => Error::TooLarge { store, source: error.into() },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Busy {
            resource: store,
            reason: format!("another process has not finished its transaction ({error})"),
        },
        _ => Error::Unavailable { store, source: error.into() },
    }
}

/// Whether a commit that failed like this has certainly been rolled back.
fn is_rolled_back(error: &rusqlite::Error) -> bool {
    use ErrorCode::{
        ConstraintViolation, DatabaseBusy, DatabaseLocked, DiskFull, OutOfMemory, TooBig,
    };
    let code = error.sqlite_error_code();
    let certain =
        [ConstraintViolation, DatabaseBusy, DatabaseLocked, DiskFull, OutOfMemory, TooBig];
    code.is_some_and(|code| certain.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At `FULL`, in the default journal mode, SQLite removes the journal without syncing the
    /// folder. A power failure brought the journal back, and the next process to open the database
    /// rolled back what the fence had acknowledged.
    #[test]
    fn commit_syncs_the_removal_of_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fence.db");
        // In a new database, in one that exists, and in one in WAL mode.
        for round in 0..3 {
            let fence = Sqlite::open(&path).unwrap();
            let connection = fence.connection.try_lock().unwrap();
            let pragma =
                |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            assert_eq!(pragma("synchronous"), Ok(3), "round {round}: EXTRA");
            assert_eq!(pragma("fullfsync"), Ok(1), "round {round}");
            if round == 1 {
                let wal = "PRAGMA journal_mode = wal";
                connection.query_row(wal, [], |row| row.get::<_, String>(0)).unwrap();
            }
        }
    }
}
