//! SQLite: one connection, used by one call at a time on a thread that may block.

use super::{Row, Statement, StoreError, Transaction, Value, Written};
use holdfast_fence::{Token, sqlite as fence};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row as SqliteRow, ToSql, TransactionBehavior, params_from_iter};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a call waits for other processes that use the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";
const SERIAL: &str = "INTEGER PRIMARY KEY AUTOINCREMENT";

pub(super) struct Sqlite {
    connection: Arc<Mutex<Connection>>,
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
            let connection = Connection::open(&path).map_err(failed)?;
            connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
            connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
            // Makes every commit durable as well.
            fence::create_table(&connection)
                .map_err(|error| StoreError::Unavailable(error.to_string()))?;
            Ok(Self { connection: Arc::new(Mutex::new(connection)) })
        });
        opened.await.unwrap_or_else(|died| Err(StoreError::Unknown(died.to_string())))
    }

    pub(super) async fn migrate(&self, steps: &'static [&'static str]) -> Result<(), StoreError> {
        self.run(move |connection| {
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
        self.run(move |connection| {
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
        self.run(move |connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
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

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let connection = self.connection.clone();
        let done = tokio::task::spawn_blocking(move || {
            // A transaction that a panic left behind was rolled back when it was dropped.
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            work(&mut connection).map_err(|error| StoreError::Unavailable(error.to_string()))
        });
        done.await.unwrap_or_else(|died| Err(StoreError::Unknown(died.to_string())))
    }
}

fn dialect(sql: &str) -> String {
    sql.replace("{now}", NOW).replace("{serial}", SERIAL)
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
