//! PostgreSQL: a few connections; one that fails is replaced by a new one.

use super::{Row, Statement, StoreError, Transaction, Value, Written};
use bytes::BytesMut;
use holdfast_fence::{Token, postgres as fence};
use std::error::Error as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Config, NoTls, Row as PostgresRow};

/// More would only wait for each other: most calls change one of a few rows.
const CONNECTIONS_MAX: usize = 8;

/// A call ends after this time, whatever the server does and however many wait for a connection.
const TIMEOUT: Duration = Duration::from_secs(6);

/// A stopped instance must not keep a row: its transaction is ended.
const SESSION: &str = "SET idle_in_transaction_session_timeout = '5s'; SET lock_timeout = '3s'";

const NOW: &str = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";
const SERIAL: &str = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY";

/// Instances that start together take turns. The number is the service's own.
const ONE_AT_A_TIME: &str = "SELECT pg_advisory_xact_lock(6005)";

pub(super) struct Postgres {
    config: Config,
    idle: Mutex<Vec<Client>>,
    places: Semaphore,
}

impl Postgres {
    pub(super) async fn connect(url: &str) -> Result<Self, StoreError> {
        let config = parse(url).map_err(StoreError::Unavailable)?;
        let places = Semaphore::new(CONNECTIONS_MAX);
        let postgres = Self { config, idle: Mutex::new(Vec::new()), places };
        postgres
            .run(async |client| {
                let created = fence::create_table(client).await;
                created.map_err(|error| StoreError::Unavailable(error.to_string()))
            })
            .await?;
        Ok(postgres)
    }

    pub(super) async fn migrate(&self, steps: &'static [&'static str]) -> Result<(), StoreError> {
        self.run(async |client| {
            let transaction = client.transaction().await.map_err(not_done)?;
            transaction.execute(ONE_AT_A_TIME, &[]).await.map_err(not_done)?;
            let made = "CREATE TABLE IF NOT EXISTS ticketing_schema (version INT NOT NULL)";
            transaction.execute(made, &[]).await.map_err(not_done)?;
            let version = "SELECT version FROM ticketing_schema";
            let version = transaction.query_opt(version, &[]).await.map_err(not_done)?;
            let version = version.map_or(0, |row| row.get::<_, i32>(0));
            let done = usize::try_from(version).unwrap_or(0);
            for step in steps.iter().skip(done) {
                transaction.batch_execute(&dialect(step)).await.map_err(not_done)?;
            }
            let now = i32::try_from(steps.len().max(done)).unwrap_or(i32::MAX);
            let note = format!(
                "DELETE FROM ticketing_schema; INSERT INTO ticketing_schema VALUES ({now})"
            );
            transaction.batch_execute(&note).await.map_err(not_done)?;
            transaction.commit().await.map_err(not_done)
        })
        .await
    }

    pub(super) async fn query(&self, statement: &Statement) -> Result<Vec<Row>, StoreError> {
        self.run(async |client| {
            let rows = client.query(&dialect(&statement.sql), &values(statement)).await;
            Ok(rows.map_err(not_done)?.iter().map(row).collect())
        })
        .await
    }

    pub(super) async fn transact(&self, work: &Transaction) -> Result<Written, StoreError> {
        self.run(async |client| {
            let transaction = client.transaction().await.map_err(not_done)?;
            if let Some(line) = &work.line {
                let found = transaction.query_opt(&dialect(super::sql::LINE_IS), &[line]).await;
                if found.map_err(not_done)?.is_none() {
                    return Ok(Written::OtherLine);
                }
            }
            if let Some((resource, token)) = &work.fence {
                let shown = match Token::exclusive(*token) {
                    Ok(token) => fence::check(&transaction, resource, token).await,
                    Err(invalid) => Err(invalid.into()),
                };
                match shown {
                    Ok(_) => {}
                    Err(holdfast_fence::Error::Refused(refused)) => {
                        return Ok(Written::Fenced(super::superseded(&refused)));
                    }
                    Err(error) => return Err(StoreError::Unavailable(error.to_string())),
                }
            }
            for guarded in &work.guarded {
                let changed = transaction.execute(&dialect(&guarded.sql), &values(guarded)).await;
                if changed.map_err(not_done)? == 0 {
                    return Ok(Written::Unmatched);
                }
            }
            for statement in &work.then {
                let done = transaction.execute(&dialect(&statement.sql), &values(statement)).await;
                done.map_err(not_done)?;
            }
            match transaction.commit().await {
                Ok(()) => Ok(Written::Done),
                Err(error) if error.code().is_some_and(means_rollback) => Err(not_done(error)),
                Err(error) => Err(StoreError::Unknown(message(&error))),
            }
        })
        .await
    }

    /// Runs a call on a connection of its own. After an error the connection is not used again.
    async fn run<T>(
        &self,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let silent =
            || StoreError::Unknown(format!("no answer within {} seconds", TIMEOUT.as_secs()));
        let call = async {
            let _place = self.places.acquire().await;
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut client = match idle.filter(|client| !client.is_closed()) {
                Some(client) => client,
                None => self.open().await?,
            };
            let done = work(&mut client).await;
            if done.is_ok() {
                self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
            }
            done
        };
        timeout(TIMEOUT, call).await.unwrap_or_else(|_| Err(silent()))
    }

    async fn open(&self) -> Result<Client, StoreError> {
        let (client, connection) = self.config.connect(NoTls).await.map_err(not_done)?;
        tokio::spawn(connection);
        client.batch_execute(SESSION).await.map_err(not_done)?;
        Ok(client)
    }
}

pub(super) fn check_url(url: &str) -> Result<(), String> {
    parse(url).map(drop)
}

fn parse(url: &str) -> Result<Config, String> {
    let config: Result<Config, _> = url.parse();
    config.map_err(|error| format!("invalid DATABASE_URL: {}", message(&error)))
}

fn dialect(sql: &str) -> String {
    sql.replace("{now}", NOW).replace("{serial}", SERIAL).replace("{for_share}", "FOR SHARE")
}

/// Whether an error that answers a COMMIT proves that nothing was committed. PgBouncer also sends codes,
/// for example 08P01 when the server's connection ended: the commit may have been durable by then. A
/// serialisation failure, a deadlock, a broken constraint and an aborted transaction are certain.
fn means_rollback(code: &SqlState) -> bool {
    *code != SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
        && (*code == SqlState::IN_FAILED_SQL_TRANSACTION
            || ["40", "23"].iter().any(|class| code.code().starts_with(class)))
}

fn not_done(error: tokio_postgres::Error) -> StoreError {
    StoreError::Unavailable(message(&error))
}

/// What the server said, not only that it said something.
fn message(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(printed), _) => printed.message().to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

fn values(statement: &Statement) -> Vec<&(dyn ToSql + Sync)> {
    statement.values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

fn row(row: &PostgresRow) -> Row {
    let value = |(index, column): (usize, &tokio_postgres::Column)| match *column.type_() {
        Type::INT8 => row.get::<_, Option<i64>>(index).into(),
        Type::TEXT => row.get::<_, Option<&str>>(index).into(),
        _ => Value::Null,
    };
    row.columns().iter().enumerate().map(value).collect()
}

impl ToSql for Value {
    fn to_sql(
        &self,
        as_type: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(number) => number.to_sql(as_type, out),
            Self::Text(text) => text.to_sql(as_type, out),
        }
    }

    fn accepts(as_type: &Type) -> bool {
        [Type::INT8, Type::TEXT].contains(as_type)
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Behind PgBouncer, tickets were sold and their payments voided: any error with a code counted as
    /// a rollback, and PgBouncer has codes of its own for a server that went away during a COMMIT.
    #[test]
    fn only_codes_of_a_rollback_make_a_commit_definite() {
        for rolled_back in ["40001", "40P01", "40002", "23505", "23514", "25P02"] {
            assert!(means_rollback(&SqlState::from_code(rolled_back)), "{rolled_back}");
        }
        for unknown in ["08P01", "08006", "57P01", "57P03", "58000", "53300", "40003", "XX000"] {
            assert!(!means_rollback(&SqlState::from_code(unknown)), "{unknown}");
        }
    }
}
