//! The two tables and their statements.

use crate::drivers::cassandra::cluster::{Cluster, text};
use crate::drivers::cassandra::whole_seconds;
use crate::drivers::failure::Failure;
use crate::drivers::local_queue::LocalQueues;
use crate::error::Error;
use crate::token::Token;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlValue, Row};
use std::time::Duration;

/// How long a request that got no reply may still be in progress in Cassandra: its longest timeout
/// for a client request, 12s by default, plus a margin.
pub(super) const IN_FLIGHT: Duration = Duration::from_secs(15);

pub(super) struct Tables {
    cluster: Cluster,
    /// This process's waiters.
    pub(super) lines: LocalQueues,
    take: PreparedStatement,
    extend: PreparedStatement,
    release: PreparedStatement,
    read: PreparedStatement,
    look: PreparedStatement,
    /// `None` with `plain=1`.
    pub(super) tokens: Option<Tokens>,
}

pub(super) struct Tokens {
    read: PreparedStatement,
    first: PreparedStatement,
    next: PreparedStatement,
    restore: PreparedStatement,
}

/// The row of a lock's token.
#[derive(Debug, Clone, Default)]
pub(super) struct Mark {
    pub(super) token: i64,
    /// The holder that has not finished (yet).
    pub(super) holder: Option<String>,
    pub(super) note: Option<String>,
}

impl Tables {
    pub(super) async fn open(cluster: Cluster, plain: bool) -> Result<Self, Error> {
        const LOCKS: &str = "(lock_name varchar PRIMARY KEY, client_id varchar)
            WITH default_time_to_live = 15";
        // `token` is also a CQL function, hence the quotes.
        const TOKENS: &str =
            "(lock_name varchar PRIMARY KEY, \"token\" bigint, holder varchar, note varchar)";
        cluster.create_table("locks", LOCKS).await?;
        let (locks, quorum, serial) =
            (cluster.table("locks"), Consistency::Quorum, Consistency::Serial);
        let update = format!("UPDATE {locks} USING TTL ? SET client_id = ? WHERE lock_name = ?");
        let read = format!("SELECT client_id, TTL(client_id) FROM {locks} WHERE lock_name = ?");
        let take = cluster.prepare(&format!("{update} IF client_id = null"), quorum).await?;
        let extend = cluster.prepare(&format!("{update} IF client_id = ?"), quorum).await?;
        let release = format!("DELETE FROM {locks} WHERE lock_name = ? IF client_id = ?");
        let release = cluster.prepare(&release, quorum).await?;
        let look = cluster.prepare(&read, quorum).await?;
        let read = cluster.prepare(&read, serial).await?;
        let tokens = if plain {
            None
        } else {
            cluster.create_table("lock_tokens", TOKENS).await?;
            let table = cluster.table("lock_tokens");
            let read = format!("SELECT \"token\", holder, note FROM {table} WHERE lock_name = ?");
            let first = format!(
                "INSERT INTO {table} (lock_name, \"token\", holder, note) VALUES (?, ?, ?, ?) IF NOT EXISTS"
            );
            let next = format!(
                "UPDATE {table} SET \"token\" = ?, holder = ?, note = ? WHERE lock_name = ? IF \"token\" = ?"
            );
            let restore = format!(
                "UPDATE {table} SET holder = ?, note = ? WHERE lock_name = ? IF holder = ?"
            );
            Some(Tokens {
                read: cluster.prepare(&read, serial).await?,
                first: cluster.prepare(&first, quorum).await?,
                next: cluster.prepare(&next, quorum).await?,
                restore: cluster.prepare(&restore, quorum).await?,
            })
        };
        let lines = LocalQueues::default();
        Ok(Self { cluster, lines, take, extend, release, read, look, tokens })
    }

    pub(super) fn timeout(&self) -> Duration {
        self.cluster.timeout
    }

    /// Takes the row if there is none. Otherwise returns its owner, if known.
    pub(super) async fn take(
        &self,
        name: &str,
        owner: &str,
        ttl: Duration,
    ) -> Result<Result<(), Option<String>>, Failure> {
        let rows = self.cluster.run(&self.take, (whole_seconds(ttl), owner, name)).await?;
        Ok(if applied(&rows) { Ok(()) } else { Err(rows.first().and_then(|row| text(row, 1))) })
    }

    /// Returns false if the row does not belong to this owner.
    pub(super) async fn extend(
        &self,
        name: &str,
        owner: &str,
        ttl: Duration,
    ) -> Result<bool, Failure> {
        let values = (whole_seconds(ttl), owner, name, owner);
        Ok(applied(&self.cluster.run(&self.extend, values).await?))
    }

    /// Returns false if the row does not belong to this owner.
    pub(super) async fn release(&self, name: &str, owner: &str) -> Result<bool, Failure> {
        Ok(applied(&self.cluster.run(&self.release, (name, owner)).await?))
    }

    /// The owner of the row and how long it lasts, after all earlier conditional writes, including
    /// those with an unknown outcome.
    pub(super) async fn read(&self, name: &str) -> Result<Option<(String, Duration)>, Error> {
        let rows = self.cluster.run(&self.read, (name,)).await.map_err(Failure::into_error)?;
        Ok(rows.first().and_then(client))
    }

    /// The owner of the row, read without disturbing conditional writes by others.
    pub(super) async fn look(&self, name: &str) -> Result<Option<String>, Error> {
        let rows = self.cluster.run(&self.look, (name,)).await.map_err(Failure::into_error)?;
        Ok(rows.first().and_then(client).map(|(owner, _)| owner))
    }

    pub(super) async fn mark(&self, tokens: &Tokens, name: &str) -> Result<Option<Mark>, Error> {
        let rows = self.cluster.run(&tokens.read, (name,)).await.map_err(Failure::into_error)?;
        Ok(rows.first().map(|row| Mark {
            token: number(row, 0).unwrap_or(0),
            holder: text(row, 1),
            note: text(row, 2),
        }))
    }

    /// Raises the token above `last` and records the holder. Returns false if someone else was
    /// faster.
    pub(super) async fn raise(
        &self,
        tokens: &Tokens,
        name: &str,
        last: Option<i64>,
        mark: &Mark,
    ) -> Result<bool, Failure> {
        let Mark { token, holder, note } = mark;
        let rows = match last {
            None => self.cluster.run(&tokens.first, (name, token, holder, note)).await?,
            Some(last) => self.cluster.run(&tokens.next, (token, holder, note, name, last)).await?,
        };
        Ok(applied(&rows))
    }

    /// Replaces a holder's mark with the previous one, or with none.
    pub(super) async fn restore(
        &self,
        tokens: &Tokens,
        name: &str,
        owner: &str,
        before: &Mark,
    ) -> Result<(), Failure> {
        let values = (&before.holder, &before.note, name, owner);
        self.cluster.run(&tokens.restore, values).await.map(drop)
    }
}

fn applied(rows: &[Row]) -> bool {
    let first = rows.first().and_then(|row| row.columns.first()?.as_ref()?.as_boolean());
    first.unwrap_or(false)
}

/// The owner of a row and its TTL; `None` for a row of nulls.
fn client(row: &Row) -> Option<(String, Duration)> {
    let ttl = row.columns.get(1).and_then(|ttl| ttl.as_ref()?.as_int()).unwrap_or(0);
    Some((text(row, 0)?, Duration::from_secs(u64::try_from(ttl).unwrap_or(0))))
}

fn number(row: &Row, column: usize) -> Option<i64> {
    row.columns.get(column)?.as_ref().and_then(CqlValue::as_bigint)
}

pub(super) fn token(number: i64) -> Token {
    Token::new(u64::try_from(number).unwrap_or(0))
}
