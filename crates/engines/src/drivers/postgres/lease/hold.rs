//! A held lease.

use super::table::{Sql, Table, left, ttl_ms};
use crate::clock::Moment;
use crate::driver::{Hold, Step, Validity};
use crate::drivers::failure::Failure;
use crate::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

pub(super) struct LeaseHold {
    table: Arc<Table>,
    name: String,
    /// Unique to the acquisition, so it also serves as the proof.
    owner: String,
}

impl LeaseHold {
    pub(super) fn new(table: Arc<Table>, name: String, owner: String) -> Self {
        Self { table, name, owner }
    }

    /// Each statement changes only a lease of this owner, so it may be retried, or arrive late.
    async fn run(&self, sql: Sql, values: &[&(dyn ToSql + Sync)]) -> Result<Row, Error> {
        let rows = self.table.run(sql, values).await;
        let rows = rows.map_err(Failure::into_error)?;
        let over = || Error::NotHeld("the lease has run out or was released".to_owned());
        rows.into_iter().next().ok_or_else(over)
    }
}

impl Hold for LeaseHold {
    fn extend(&self, ttl: Duration) -> Step<'_, Validity> {
        Box::pin(async move {
            let (sent, ms, channel) = (Moment::now(), ttl_ms(ttl), self.table.channel());
            self.run(Sql::Extend, &[&self.name, &self.owner, &ms, &channel]).await?;
            Ok(Validity::of_ttl(sent, ttl))
        })
    }

    fn release(&self) -> Step<'_, ()> {
        Box::pin(async move {
            let channel = self.table.channel();
            self.run(Sql::Release, &[&self.name, &self.owner, &channel]).await.map(drop)
        })
    }

    /// A reply proves that everything sent before has run, or never will.
    fn settle(&self) -> Step<'_, Option<Moment>> {
        Box::pin(async move {
            let looked = self.table.run(Sql::Check, &[&self.name, &self.owner]).await;
            looked.map_err(Failure::into_error).map(|_| None)
        })
    }

    fn check(&self) -> Step<'_, Duration> {
        Box::pin(async move {
            let row = self.run(Sql::Check, &[&self.name, &self.owner]).await?;
            Ok(left(row.get(0)))
        })
    }

    fn proof(&self) -> Option<String> {
        Some(self.owner.clone())
    }
}
