//! The tables `numbers` and `choosing`.

use super::ticket::Ticket;
use crate::drivers::cassandra::cluster::{Cluster, text};
use crate::drivers::cassandra::whole_seconds;
use crate::drivers::failure::Failure;
use crate::error::Error;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlValue, Row};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The TTL of a flag. A customer that needs longer to choose starts again.
pub(super) const CHOOSING_TTL: Duration = Duration::from_secs(10);

pub(super) struct Tables {
    cluster: Cluster,
    set_flag: PreparedStatement,
    flags: PreparedStatement,
    remove_flag: PreparedStatement,
    set_number: PreparedStatement,
    numbers: PreparedStatement,
    remove_number: PreparedStatement,
}

/// A row of `numbers`.
#[derive(Debug, Clone)]
pub(super) struct Customer {
    pub(super) ticket: Ticket,
    pub(super) client_id: String,
    /// How long the row lasts if nobody extends it. It may expire a second early.
    pub(super) left: Duration,
    pub(super) written_us: i64,
}

impl Tables {
    pub(super) async fn open(cluster: Cluster) -> Result<Self, Error> {
        // Each attempt leaves tombstones that all readers of the lock have to skip, so they are
        // kept for an hour, not for ten days. A row that a late replica brings back still has its
        // TTL.
        const CHOOSING: &str = "(lock_name varchar, id bigint, choosing boolean,
            PRIMARY KEY (lock_name, id)) WITH default_time_to_live = 15 AND gc_grace_seconds = 3600";
        const NUMBERS: &str = "(lock_name varchar, id bigint, number bigint, client_id varchar,
            PRIMARY KEY (lock_name, id)) WITH default_time_to_live = 15 AND gc_grace_seconds = 3600";
        cluster.create_table("choosing", CHOOSING).await?;
        cluster.create_table("numbers", NUMBERS).await?;
        let (choosing, numbers) = (cluster.table("choosing"), cluster.table("numbers"));
        let statements = [
            format!(
                "UPDATE {choosing} USING TIMESTAMP ? AND TTL ? SET choosing = ? WHERE lock_name = ? AND id = ?"
            ),
            format!("SELECT id, choosing FROM {choosing} WHERE lock_name = ?"),
            format!("DELETE FROM {choosing} USING TIMESTAMP ? WHERE lock_name = ? AND id = ?"),
            format!(
                "UPDATE {numbers} USING TIMESTAMP ? AND TTL ? SET number = ?, client_id = ? WHERE lock_name = ? AND id = ?"
            ),
            format!(
                "SELECT id, number, client_id, TTL(number), WRITETIME(number) FROM {numbers} WHERE lock_name = ?"
            ),
            format!("DELETE FROM {numbers} USING TIMESTAMP ? WHERE lock_name = ? AND id = ?"),
        ];
        let mut prepared = Vec::new();
        for cql in &statements {
            prepared.push(cluster.prepare(cql, Consistency::Quorum).await?);
        }
        let Ok([set_flag, flags, remove_flag, set_number, numbers, remove_number]) =
            <[PreparedStatement; 6]>::try_from(prepared)
        else {
            return Err(Error::Unreachable("internal error: six statements".to_owned()));
        };
        Ok(Self { cluster, set_flag, flags, remove_flag, set_number, numbers, remove_number })
    }

    pub(super) fn timeout(&self) -> Duration {
        self.cluster.timeout
    }

    pub(super) async fn set_flag(
        &self,
        name: &str,
        id: i64,
        choosing: bool,
        time_us: i64,
    ) -> Result<(), Failure> {
        let values = (time_us, whole_seconds(CHOOSING_TTL), choosing, name, id);
        self.cluster.run(&self.set_flag, values).await.map(drop)
    }

    /// The ids of everyone who is choosing.
    pub(super) async fn choosers(&self, name: &str) -> Result<Vec<i64>, Failure> {
        let rows = self.cluster.run(&self.flags, (name,)).await?;
        let choosing = |row: &Row| row.columns.get(1)?.as_ref()?.as_boolean();
        let chooser = |row: &Row| choosing(row).filter(|choosing| *choosing).and(number(row, 0));
        Ok(rows.iter().filter_map(chooser).collect())
    }

    pub(super) async fn set_number(
        &self,
        name: &str,
        ticket: Ticket,
        client_id: &str,
        ttl: Duration,
        time_us: i64,
    ) -> Result<(), Failure> {
        let seconds = whole_seconds(ttl);
        let values = (time_us, seconds, ticket.number, client_id, name, ticket.id);
        self.cluster.run(&self.set_number, values).await.map(drop)
    }

    /// Everyone who has a number, lowest first.
    pub(super) async fn customers(&self, name: &str) -> Result<Vec<Customer>, Failure> {
        let rows = self.cluster.run(&self.numbers, (name,)).await?;
        let mut customers: Vec<_> = rows.iter().filter_map(customer).collect();
        customers.sort_by_key(|customer| customer.ticket);
        Ok(customers)
    }

    /// Removes both rows of an id.
    pub(super) async fn remove(&self, name: &str, id: i64, time_us: i64) -> Result<(), Failure> {
        let (flag, number) = tokio::join!(
            self.cluster.run(&self.remove_flag, (time_us, name, id)),
            self.cluster.run(&self.remove_number, (time_us, name, id)),
        );
        flag.and(number).map(drop)
    }
}

fn customer(row: &Row) -> Option<Customer> {
    let ttl = row.columns.get(3)?.as_ref().and_then(CqlValue::as_int).unwrap_or(0);
    Some(Customer {
        ticket: Ticket { id: number(row, 0)?, number: number(row, 1)? },
        client_id: text(row, 2)?,
        left: Duration::from_secs(u64::try_from(ttl).unwrap_or(0)),
        written_us: number(row, 4)?,
    })
}

fn number(row: &Row, column: usize) -> Option<i64> {
    row.columns.get(column)?.as_ref().and_then(CqlValue::as_bigint)
}

/// A write timestamp higher than `last`.
pub(super) fn time_after(last: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX).max(last + 1)
}
