//! The lowest number.

use super::tables::{Customer, Tables, time_after};
use crate::clock::Moment;
use crate::driver::{Hold, Step, Validity};
use crate::drivers::cassandra::validity;
use crate::drivers::failure::Failure;
use crate::error::Error;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct BakeryHold {
    tables: Arc<Tables>,
    name: String,
    /// Unique to the attempt, so it is the proof as well.
    id: i64,
}

fn over() -> Error {
    Error::NotHeld("the number has expired or was removed".to_owned())
}

impl BakeryHold {
    pub(super) fn new(tables: Arc<Tables>, name: String, id: i64) -> Self {
        Self { tables, name, id }
    }

    /// Our row.
    async fn own(&self) -> Result<Customer, Error> {
        let customers = self.tables.customers(&self.name).await.map_err(Failure::into_error)?;
        customers.into_iter().find(|customer| customer.ticket.id == self.id).ok_or_else(over)
    }

    async fn remove(&self, own: &Customer) -> Result<(), Error> {
        let removed = self.tables.remove(&self.name, self.id, time_after(own.written_us)).await;
        removed.map_err(Failure::into_error)
    }
}

impl Hold for BakeryHold {
    fn extend(&self, ttl: Duration) -> Step<'_, Validity> {
        Box::pin(async move {
            let sent = Moment::now();
            let own = self.own().await?;
            // The row may end a second early.
            let expires = sent.plus(own.left.saturating_sub(Duration::from_secs(1)));
            let (time_us, ticket) = (time_after(own.written_us), own.ticket);
            let written =
                self.tables.set_number(&self.name, ticket, &own.client_id, ttl, time_us).await;
            written.map_err(Failure::into_error)?;
            if expires.has_passed() {
                // Written without a condition, a number may come back after others have passed.
                let _ = self.remove(&Customer { written_us: time_us, ..own }).await;
                return Err(over());
            }
            Ok(validity(sent, ttl))
        })
    }

    fn release(&self) -> Step<'_, ()> {
        Box::pin(async move {
            let own = self.own().await?;
            self.remove(&own).await?;
            match self.own().await {
                Err(Error::NotHeld(_)) => Ok(()),
                Ok(_) => Err(Error::Unreachable("the number is still there".to_owned())),
                Err(error) => Err(error),
            }
        })
    }

    fn check(&self) -> Step<'_, Duration> {
        Box::pin(async move { Ok(self.own().await?.left) })
    }

    fn proof(&self) -> Option<String> {
        Some(self.id.to_string())
    }
}
