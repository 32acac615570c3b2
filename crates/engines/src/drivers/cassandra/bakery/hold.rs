//! A held lock: the lowest number.

use super::tables::{Customer, Tables, time_after};
use crate::clock::Moment;
use crate::driver::{Hold, Step, Validity};
use crate::drivers::cassandra::validity;
use crate::drivers::failure::Failure;
use crate::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

pub(super) struct BakeryHold {
    tables: Arc<Tables>,
    name: String,
    /// Unique to the attempt, so it also serves as the proof.
    id: i64,
    /// The timestamp of the last write: writes that got no reply may arrive late.
    last_us: AtomicI64,
}

/// How much too long a TTL in whole seconds may become when it is written again.
const ROUNDING: Duration = Duration::from_secs(1);

fn over() -> Error {
    Error::NotHeld("the number has expired or was removed".to_owned())
}

impl BakeryHold {
    pub(super) fn new(tables: Arc<Tables>, name: String, id: i64) -> Self {
        Self { tables, name, id, last_us: AtomicI64::new(0) }
    }

    /// A timestamp higher than that of any earlier write.
    fn next_us(&self, own: &Customer) -> i64 {
        let last_us = self.last_us.load(Ordering::Relaxed).max(own.written_us);
        let next_us = time_after(last_us);
        self.last_us.store(next_us, Ordering::Relaxed);
        next_us
    }

    async fn own(&self) -> Result<Customer, Error> {
        let customers = self.tables.customers(&self.name).await.map_err(Failure::into_error)?;
        customers.into_iter().find(|customer| customer.ticket.id == self.id).ok_or_else(over)
    }

    async fn remove(&self, own: &Customer) -> Result<(), Error> {
        let removed = self.tables.remove(&self.name, self.id, self.next_us(own)).await;
        removed.map_err(Failure::into_error)
    }
}

impl Hold for BakeryHold {
    fn extend(&self, ttl: Duration) -> Step<'_, Validity> {
        Box::pin(async move {
            let sent = Moment::now();
            let own = self.own().await?;
            // The row may expire a second early.
            let expires = sent.plus(own.left.saturating_sub(Duration::from_secs(1)));
            let (time_us, ticket) = (self.next_us(&own), own.ticket);
            let written =
                self.tables.set_number(&self.name, ticket, &own.client_id, ttl, time_us).await;
            written.map_err(Failure::into_error)?;
            if expires.has_passed() {
                // The write is unconditional, so the number may have come back after others had
                // passed us.
                let _ = self.remove(&own).await;
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

    /// Writes the number once more, with the rest of its TTL: a write that arrives later has an
    /// older timestamp, and no effect.
    fn settle(&self) -> Step<'_, Option<Moment>> {
        Box::pin(async move {
            let own = self.own().await?;
            let (time_us, left) = (self.next_us(&own), own.left.saturating_sub(ROUNDING));
            let written =
                self.tables.set_number(&self.name, own.ticket, &own.client_id, left, time_us).await;
            written.map_err(Failure::into_error).map(|()| None)
        })
    }

    fn check(&self) -> Step<'_, Duration> {
        Box::pin(async move { Ok(self.own().await?.left) })
    }

    fn proof(&self) -> Option<String> {
        Some(self.id.to_string())
    }
}
