//! A held lock.

use super::space::Space;
use crate::clock::Moment;
use crate::driver::{Hold, Step, Validity};
use crate::error::Error;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct MemoryHold {
    pub(super) space: Arc<Space>,
    pub(super) name: String,
    /// Unique to the acquisition, so it also serves as the proof.
    pub(super) owner: String,
}

fn over() -> Error {
    Error::NotHeld("the lease has run out".to_owned())
}

impl Hold for MemoryHold {
    fn extend(&self, ttl: Duration) -> Step<'_, Validity> {
        Box::pin(async move {
            let sent = Moment::now();
            self.space.with_line(&self.name, |line| {
                let first = line.tickets.front_mut().filter(|first| first.owner == self.owner);
                first.ok_or_else(over)?.deadline = Some(sent.plus(ttl));
                Ok(Validity::of_ttl(sent, ttl))
            })
        })
    }

    fn release(&self) -> Step<'_, ()> {
        Box::pin(async move {
            let released = self.space.with_line(&self.name, |line| line.remove(&self.owner));
            if released { Ok(()) } else { Err(over()) }
        })
    }

    fn check(&self) -> Step<'_, Duration> {
        Box::pin(async move {
            self.space.with_line(&self.name, |line| {
                let first = line.tickets.front().filter(|first| first.owner == self.owner);
                let deadline = first.and_then(|first| first.deadline).ok_or_else(over)?;
                Ok(deadline.remaining())
            })
        })
    }

    fn proof(&self) -> Option<String> {
        Some(self.owner.clone())
    }
}
