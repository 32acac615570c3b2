//! A lock row that is ours.

use super::tables::{Mark, Tables};
use crate::clock::Moment;
use crate::driver::{Hold, Step, Validity};
use crate::drivers::cassandra::validity;
use crate::drivers::failure::Failure;
use crate::error::Error;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct LwtHold {
    tables: Arc<Tables>,
    name: String,
    /// Unique to the acquisition, so it is the proof as well.
    owner: String,
}

fn over() -> Error {
    Error::NotHeld("the lease has run out or was released".to_owned())
}

impl LwtHold {
    pub(super) fn new(tables: Arc<Tables>, name: String, owner: String) -> Self {
        Self { tables, name, owner }
    }

    /// How long the row stays if nobody extends it.
    async fn left(&self) -> Result<Duration, Error> {
        match self.tables.read(&self.name).await? {
            Some((holder, left)) if holder == self.owner => Ok(left),
            _ => Err(over()),
        }
    }
}

impl Hold for LwtHold {
    fn extend(&self, ttl: Duration) -> Step<'_, Validity> {
        Box::pin(async move {
            let sent = Moment::now();
            let extended = self.tables.extend(&self.name, &self.owner, ttl).await;
            if extended.map_err(Failure::into_error)? {
                Ok(validity(sent, ttl))
            } else {
                Err(over())
            }
        })
    }

    fn release(&self) -> Step<'_, ()> {
        Box::pin(async move {
            if let Some(tokens) = &self.tables.tokens {
                // In this order: whoever gets the row must not find a mark that looks like a death.
                self.left().await?;
                let none = Mark::default();
                let cleared = self.tables.restore(tokens, &self.name, &self.owner, &none).await;
                cleared.map_err(Failure::into_error)?;
            }
            let released = self.tables.release(&self.name, &self.owner).await;
            if !released.map_err(Failure::into_error)? {
                return Err(over());
            }
            self.tables.lines.wake(&self.name);
            Ok(())
        })
    }

    fn check(&self) -> Step<'_, Duration> {
        Box::pin(self.left())
    }

    fn proof(&self) -> Option<String> {
        Some(self.owner.clone())
    }
}
