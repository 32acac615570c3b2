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

use crate::{Error, Fence, FenceFuture, Fenced, Highest, Refused, Token, check_resource, sql};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, GenericClient, NoTls, Row, Transaction};

/// How long to wait for a server that does not answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long sent bytes may go unacknowledged before the connection counts as lost.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(30);

/// With `synchronous_commit` off, PostgreSQL acknowledges commits that a crash can still lose.
const SYNCHRONOUS_COMMIT: &str = "SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off'";

/// A fence with a connection of its own; it reconnects if the connection is lost.
#[derive(Debug)]
pub struct Postgres {
    config: Option<Config>,
    client: tokio::sync::Mutex<Arc<Client>>,
}

impl Postgres {
    /// Connects without TLS, and creates the fence's table if it is missing.
    ///
    /// `config` is a connection string, for instance `host=10.0.0.7 user=shop dbname=shop`.
    pub async fn connect(config: &str) -> Result<Self, Error> {
        let mut config: Config = config.parse().map_err(unreachable)?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(TCP_USER_TIMEOUT);
        }
        let client = connect(&config).await?;
        create_table(&client).await?;
        Ok(Self { config: Some(config), client: tokio::sync::Mutex::new(Arc::new(client)) })
    }

    /// Uses an existing client, for instance one with TLS. It does not reconnect.
    pub async fn with_client(client: Client) -> Result<Self, Error> {
        client.execute(SYNCHRONOUS_COMMIT, &[]).await.map_err(failed)?;
        create_table(&client).await?;
        Ok(Self { config: None, client: tokio::sync::Mutex::new(Arc::new(client)) })
    }

    async fn client(&self) -> Result<Arc<Client>, Error> {
        let mut client = self.client.lock().await;
        if client.is_closed()
            && let Some(config) = &self.config
        {
            *client = Arc::new(connect(config).await?);
        }
        Ok(client.clone())
    }
}

async fn connect(config: &Config) -> Result<Client, Error> {
    let (client, connection) = config.connect(NoTls).await.map_err(unreachable)?;
    // It ends with the client, and its errors surface in the client's calls.
    tokio::spawn(async move { drop(connection.await) });
    client.execute(SYNCHRONOUS_COMMIT, &[]).await.map_err(failed)?;
    Ok(client)
}

impl Fence for Postgres {
    fn raise<'a>(&'a self, resource: &'a str, token: Token) -> FenceFuture<'a, Fenced> {
        Box::pin(async move { raise(&*self.client().await?, resource, token).await })
    }

    fn write<'a>(&'a self, resource: &'a str, token: Token, value: Bytes) -> FenceFuture<'a, ()> {
        Box::pin(async move {
            check_resource(resource)?;
            let client = self.client().await?;
            let row = client
                .query_opt(sql::write(token.mode()), &[&resource, &token.bigint(), &&value[..]])
                .await
                .map_err(failed)?;
            match row {
                Some(_) => Ok(()),
                None => Err(refused(&*client, resource, token).await),
            }
        })
    }

    fn read<'a>(&'a self, resource: &'a str) -> FenceFuture<'a, Fenced> {
        Box::pin(async move {
            check_resource(resource)?;
            Ok(read(&*self.client().await?, resource).await?.unwrap_or_default())
        })
    }
}

/// Creates the fence's table if it is missing.
pub async fn create_table(client: &Client) -> Result<(), Error> {
    // A user without the right to create tables can still use an existing one.
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

/// Shows the token inside the application's own transaction. What the transaction changes afterwards
/// is committed only if no later holder has shown its token: it keeps the fence's row locked until it
/// ends, and a later holder waits.
///
/// Call it before anything else in the transaction, and roll back if it fails. A holder that stops
/// inside a transaction blocks the others: set `idle_in_transaction_session_timeout`.
pub async fn check(
    transaction: &Transaction<'_>,
    resource: &str,
    token: Token,
) -> Result<Highest, Error> {
    Ok(raise(transaction, resource, token).await?.highest)
}

async fn raise(
    client: &(impl GenericClient + Sync),
    resource: &str,
    token: Token,
) -> Result<Fenced, Error> {
    check_resource(resource)?;
    let row = client
        .query_opt(sql::raise(token.mode()), &[&resource, &token.bigint()])
        .await
        .map_err(failed)?;
    match row {
        Some(row) => fenced(&row),
        None => Err(refused(client, resource, token).await),
    }
}

async fn read(
    client: &(impl GenericClient + Sync),
    resource: &str,
) -> Result<Option<Fenced>, Error> {
    let row = client.query_opt(sql::READ, &[&resource]).await.map_err(failed)?;
    row.as_ref().map(fenced).transpose()
}

/// The refusal, with what the fence has seen.
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

fn fenced(row: &Row) -> Result<Fenced, Error> {
    let column = |index| row.try_get::<_, i64>(index).map_err(failed);
    let value: Option<Vec<u8>> = row.try_get(2).map_err(failed)?;
    Ok(Fenced { highest: sql::highest(column(0)?, column(1)?), value: value.map(Bytes::from) })
}

fn store() -> String {
    "PostgreSQL".into()
}

fn unreachable(error: tokio_postgres::Error) -> Error {
    Error::Unavailable { store: store(), source: whole(&error).into() }
}

/// A statement that the server reports as failed was rolled back. If the connection went away, the
/// answer may have been lost.
fn failed(error: tokio_postgres::Error) -> Error {
    let store = store();
    let source = whole(&error).into();
    match error.code() {
        Some(&SqlState::DISK_FULL | &SqlState::OUT_OF_MEMORY) => Error::Full { store, source },
        Some(_) => Error::Unavailable { store, source },
        None => Error::Unknown { store, source },
    }
}

/// `Display` of a server error is only "db error"; its source has the message.
fn whole(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}
