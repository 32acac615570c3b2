//! A held lock: a row that is ours.

use super::tables::{IN_FLIGHT, Mark, Tables};
use crate::clock::Moment;
use crate::driver::{Hold, Step, Validity};
use crate::drivers::cassandra::validity;
use crate::drivers::failure::Failure;
use crate::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(super) struct LwtHold {
    tables: Arc<Tables>,
    name: String,
    /// Unique to the acquisition, so it also serves as the proof.
    owner: String,
    /// Until when a take that got no reply may still take effect.
    taken_late: Option<Moment>,
    /// The same for an extension.
    extended_late: Mutex<Option<Moment>>,
}

fn over() -> Error {
    Error::NotHeld("the lease has run out or was released".to_owned())
}

impl LwtHold {
    pub(super) fn new(tables: Arc<Tables>, name: String, owner: String) -> Self {
        Self { tables, name, owner, taken_late: None, extended_late: Mutex::default() }
    }

    /// Sets until when an attempt that got no reply may still take effect.
    pub(super) fn taken(self, late: Option<Moment>) -> Self {
        Self { taken_late: late, ..self }
    }

    fn extended_late(&self) -> MutexGuard<'_, Option<Moment>> {
        self.extended_late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the row lasts if nobody extends it.
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
            // Set first: this future may be dropped at any await.
            self.extended_late().replace(sent.plus(self.tables.timeout() + IN_FLIGHT));
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
                // In this order: the next owner of the row must not find a mark that looks like a
                // death.
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

    fn settle(&self) -> Step<'_, Option<Moment>> {
        let late = self.extended_late().filter(|late| !late.has_passed());
        Box::pin(std::future::ready(Ok(late)))
    }

    fn revives_until(&self) -> Option<Moment> {
        self.taken_late
    }

    fn check(&self) -> Step<'_, Duration> {
        Box::pin(self.left())
    }

    fn proof(&self) -> Option<String> {
        Some(self.owner.clone())
    }
}
