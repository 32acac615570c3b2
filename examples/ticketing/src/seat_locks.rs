//! The lock under each seat, on whatever engine LOCK_TYPE names.
//!
//! A lease is detached from this process and stored in the ticket's row, so that another instance can
//! book. An engine whose locks live by a session can't do that: there, the guard stays here, and other
//! instances ask the engine whether its token still holds the lock.

use crate::domain::{Reservation, TicketId};
use holdfast_locks::{Error, Guard, Inspection, LeaseRef, Locks, Promises};
use std::fmt;
use std::time::Duration;

/// How long to wait for a lock service that does not answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// How long a lock outlives an instance that crashed, if the lock lives by a session.
const SESSION_TTL: Duration = Duration::from_secs(10);

/// How long the lock that stands for an instance outlives it: longer than its row counts.
const WITNESS_TTL: Duration = Duration::from_secs(30);

/// The lock service does not answer, or refuses.
#[derive(Debug, Clone)]
pub(crate) struct LockError(String);

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lock service is unavailable: {}", self.0)
    }
}

impl std::error::Error for LockError {}

impl From<Error> for LockError {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

/// A seat that was taken a moment ago.
pub(crate) struct TakenSeat {
    pub(crate) token: Option<u64>,
    /// The detached lease, as JSON.
    pub(crate) lease: Option<String>,
    /// The lock itself, if it can't be detached.
    guard: Option<Guard>,
    /// How the previous holder ended, if the engine knows.
    pub(crate) ending: Option<String>,
}

/// A lock that lives in this process.
pub(crate) struct KeptSeat(Guard);

pub(crate) struct SeatLocks {
    locks: Locks,
    /// Shows more than `locks`, if it is another door of the same Holdfast.
    viewer: Locks,
    /// The start of every lock's name.
    prefix: String,
    ttl: Duration,
}

impl SeatLocks {
    pub(crate) fn new(locks: Locks, viewer: Locks, database: &str, ttl: Duration) -> Self {
        Self { locks, viewer, prefix: format!("ticketing/{database}"), ttl }
    }

    pub(crate) fn promises(&self) -> &'static Promises {
        self.locks.promises()
    }

    fn name(&self, ticket: TicketId) -> String {
        format!("{}/ticket/{ticket}", self.prefix)
    }

    /// Takes the lock if it is free. It never waits.
    pub(crate) async fn take(
        &self,
        ticket: TicketId,
        client: &str,
    ) -> Result<Option<TakenSeat>, LockError> {
        let detachable = self.promises().detachable.holds;
        let lock = self.locks.lock(self.name(ticket)).label(client);
        let lock = if detachable { lock.ttl(self.ttl).fixed() } else { lock.ttl(SESSION_TTL) };
        let Some(guard) = lock.try_acquire().await? else { return Ok(None) };
        let token = guard.token().map(|token| token.get());
        let ending = guard.ending().map(|ending| {
            let how = if ending.died { "expired" } else { "released" };
            let who =
                ending.label.as_deref().map_or_else(String::new, |label| format!(", {label}"));
            let token = ending.token.map_or_else(String::new, |token| format!(", token {token}"));
            format!("{how}{who}{token}")
        });
        if !detachable {
            return Ok(Some(TakenSeat { token, lease: None, guard: Some(guard), ending }));
        }
        let lease = guard.detach().await.map_err(|(_, error)| error)?;
        let lease = serde_json::to_string(&lease).map_err(|error| LockError(error.to_string()))?;
        Ok(Some(TakenSeat { token, lease: Some(lease), guard: None, ending }))
    }

    /// Gives back a seat whose reservation was not written.
    pub(crate) async fn give_back(&self, seat: TakenSeat) {
        match (seat.guard, seat.lease) {
            (Some(guard), _) => KeptSeat(guard).release().await,
            (None, Some(lease)) => self.release(&lease).await,
            (None, None) => {}
        }
    }

    /// Asks the engine whether the lock of a reservation is still held.
    pub(crate) async fn lives(
        &self,
        ticket: TicketId,
        reservation: &Reservation,
    ) -> Result<bool, LockError> {
        let Some(lease) = &reservation.lease else {
            let seen = self.locks.inspect(&self.name(ticket)).await?;
            let token = seen.and_then(|seen| seen.token).map(|token| token.get());
            return Ok(token.is_some() && token == reservation.token);
        };
        match self.attach(lease).await?.check().await {
            Ok(left) => Ok(!left.is_zero()),
            Err(Error::NotHeld(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Releases a detached lease. If the engine does not answer, the lease ends by itself.
    pub(crate) async fn release(&self, lease: &str) {
        let released = match self.attach(lease).await {
            Ok(lease) => lease.release().await.map_err(LockError::from),
            Err(error) => Err(error),
        };
        if let Err(error) = released {
            tracing::debug!("a lock was not released and ends by itself: {error}");
        }
    }

    async fn attach(&self, lease: &str) -> Result<holdfast_locks::Lease, LockError> {
        let lease: LeaseRef =
            serde_json::from_str(lease).map_err(|error| LockError(error.to_string()))?;
        Ok(self.locks.attach(lease).await?)
    }

    /// Who holds a seat, and who waits for it.
    pub(crate) async fn inspect(&self, ticket: TicketId) -> Result<Option<Inspection>, LockError> {
        let mut seen = self.viewer.inspect(&self.name(ticket)).await?;
        // A key's value is the label and a random number; another door shows both.
        if let Some(holder) = seen.as_mut().and_then(|seen| seen.holder.as_mut())
            && self.promises().engine == "redis"
            && let Some((label, nonce)) = holder.rsplit_once('/')
            && nonce.len() >= 32
        {
            *holder = label.to_owned();
        }
        Ok(seen)
    }

    /// Asks the engine anything, to see that it answers.
    pub(crate) async fn ping(&self) -> Result<(), LockError> {
        self.locks.inspect(&format!("{}/ping", self.prefix)).await?;
        Ok(())
    }

    /// Takes the lock that stands for an instance.
    pub(crate) async fn take_witness(&self, name: &str) -> Result<Option<Guard>, LockError> {
        let name = format!("{}/instance/{name}", self.prefix);
        Ok(self.locks.lock(name).ttl(WITNESS_TTL).try_acquire().await?)
    }
}

impl TakenSeat {
    /// The lock, if it stays in this process.
    pub(crate) fn keep(self) -> Option<KeptSeat> {
        self.guard.map(KeptSeat)
    }
}

impl KeptSeat {
    pub(crate) async fn release(self) {
        if let Err(error) = self.0.release().await {
            tracing::debug!("a lock was not released and ends by itself: {error}");
        }
    }
}
