//! SQLite: a connection that writes and one that reads, each used by one call at a time on a thread that
//! may block. In WAL mode a reader never waits for a writer, of this process or another.
//!
//! A write waits for two things: its turn in this process, and other processes that write. If another
//! process keeps the file locked, everybody in the queue is told after the same few seconds, however many
//! they are. No transaction waits for anything but the file.

use super::{Row, Statement, StoreError, Transaction, Value, Written};
use holdfast_fence::{Token, sqlite as fence};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row as SqliteRow, ToSql, TransactionBehavior, params_from_iter};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// How long a write waits for other processes, its time in the queue included.
const BUSY_TIMEOUT: Duration = Duration::from_secs(3);

/// What a write gets of that at least, if the queue was long but moved.
const BUSY_TIMEOUT_MIN: Duration = Duration::from_millis(500);

/// How long a write waits for its turn.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(8);

/// How long a read waits: only while another process recovers the file after a crash.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

const NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";
const SERIAL: &str = "INTEGER PRIMARY KEY AUTOINCREMENT";

pub(super) struct Sqlite {
    writer: Arc<Mutex<Connection>>,
    reader: Arc<Mutex<Connection>>,
    /// One write at a time, first come, first served.
    turn: Arc<Semaphore>,
    /// Whether the last write found the file locked by another process.
    blocked: Arc<AtomicBool>,
}

impl Sqlite {
    pub(super) async fn open(path: &Path) -> Result<Self, StoreError> {
        let path = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).map_err(|error| {
                    StoreError::Unavailable(format!("can't make {}: {error}", folder.display()))
                })?;
            }
            let shown = path.display();
            let failed = |error| StoreError::Unavailable(format!("{shown}: {error}"));
            let writer = Connection::open(&path).map_err(failed)?;
            writer.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
            writer.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
            // Makes every commit durable as well.
            fence::create_table(&writer)
                .map_err(|error| StoreError::Unavailable(error.to_string()))?;
            let reader = Connection::open(&path).map_err(failed)?;
            reader.busy_timeout(READ_TIMEOUT).map_err(failed)?;
            reader.pragma_update(None, "query_only", true).map_err(failed)?;
            Ok(Self {
                writer: Arc::new(Mutex::new(writer)),
                reader: Arc::new(Mutex::new(reader)),
                turn: Arc::new(Semaphore::new(1)),
                blocked: Arc::default(),
            })
        });
        opened.await.unwrap_or_else(|died| Err(StoreError::Unknown(died.to_string())))
    }

    pub(super) async fn migrate(&self, steps: &'static [&'static str]) -> Result<(), StoreError> {
        self.write(move |connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let version: u32 =
                transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
            for step in steps.iter().skip(version as usize) {
                transaction.execute_batch(&dialect(step))?;
            }
            transaction.pragma_update(None, "user_version", version.max(steps.len() as u32))?;
            transaction.commit()
        })
        .await
    }

    pub(super) async fn query(&self, statement: Statement) -> Result<Vec<Row>, StoreError> {
        self.read(move |connection| {
            let mut prepared = connection.prepare(&dialect(&statement.sql))?;
            let columns = prepared.column_count();
            let rows = prepared.query_map(params_from_iter(&statement.values), |row| {
                (0..columns).map(|column| value(row, column)).collect()
            })?;
            rows.collect()
        })
        .await
    }

    pub(super) async fn transact(&self, work: Transaction) -> Result<Written, StoreError> {
        self.write(move |connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if let Some(line) = &work.line
                && !transaction.prepare(&dialect(super::sql::LINE_IS))?.exists([line])?
            {
                return Ok(Ok(Written::OtherLine));
            }
            if let Some((resource, token)) = &work.fence {
                let token = Token::exclusive(*token);
                let shown = token
                    .map_err(Into::into)
                    .and_then(|token| fence::check(&transaction, resource, token));
                match shown {
                    Ok(_) => {}
                    Err(holdfast_fence::Error::Refused(refused)) => {
                        return Ok(Ok(Written::Fenced(super::superseded(&refused))));
                    }
                    Err(error) => return Ok(Err(StoreError::Unavailable(error.to_string()))),
                }
            }
            let execute = |statement: &Statement| {
                let mut prepared = transaction.prepare(&dialect(&statement.sql))?;
                prepared.execute(params_from_iter(&statement.values))
            };
            for guarded in &work.guarded {
                if execute(guarded)? == 0 {
                    return Ok(Ok(Written::Unmatched));
                }
            }
            for statement in &work.then {
                execute(statement)?;
            }
            transaction.commit()?;
            Ok(Ok(Written::Done))
        })
        .await?
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let reader = self.reader.clone();
        blocking(move || on(&reader, work).map_err(unavailable)).await
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let asked = Instant::now();
        let locked = |why: &str| StoreError::Unavailable(why.to_owned());
        let turn = timeout(QUEUE_TIMEOUT, self.turn.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else { return Err(locked("too many writes are waiting")) };
        let left = BUSY_TIMEOUT.saturating_sub(asked.elapsed());
        if left.is_zero() && self.blocked.load(Ordering::Relaxed) {
            return Err(locked("another process keeps the file locked"));
        }
        let (writer, blocked) = (self.writer.clone(), self.blocked.clone());
        blocking(move || {
            let _turn = turn;
            let done = on(&writer, |connection| {
                connection.busy_timeout(left.max(BUSY_TIMEOUT_MIN))?;
                work(connection)
            });
            let busy = matches!(&done, Err(error) if is_busy(error));
            blocked.store(busy, Ordering::Relaxed);
            done.map_err(unavailable)
        })
        .await
    }
}

fn on<T>(
    connection: &Mutex<Connection>,
    work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    // A transaction that a panic left behind was rolled back when it was dropped.
    work(&mut connection.lock().unwrap_or_else(PoisonError::into_inner))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|died| Err(StoreError::Unknown(died.to_string())))
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
}

fn unavailable(error: rusqlite::Error) -> StoreError {
    if is_busy(&error) {
        let why = "another process keeps the file locked";
        return StoreError::Unavailable(why.to_owned());
    }
    StoreError::Unavailable(error.to_string())
}

fn dialect(sql: &str) -> String {
    sql.replace("{now}", NOW).replace("{serial}", SERIAL).replace("{for_share}", "")
}

fn value(row: &SqliteRow<'_>, column: usize) -> rusqlite::Result<Value> {
    Ok(match row.get_ref(column)? {
        ValueRef::Integer(number) => Value::Int(number),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        _ => Value::Null,
    })
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Null => rusqlite::types::Null.to_sql(),
            Self::Int(number) => number.to_sql(),
            Self::Text(text) => text.to_sql(),
        }
    }
}
