//! The lock under each seat, on whatever engine LOCK_TYPE names.
//!
//! A lease is detached from this process and stored in the ticket's row, so that another instance can
//! book. An engine whose locks live by a session can't do that: there, the guard stays here, and other
//! instances ask the engine whether its token still holds the lock.
//!
//! Instances with different engines can share one line, through the doors of one Holdfast. A lease of
//! another engine can't be attached here: whether the lock is held is then seen by trying to take it.

use crate::domain::{Reservation, TicketId};
use holdfast_locks::{Error, Guard, Inspection, LeaseRef, Locks, Promises};
use serde::{Deserialize, Serialize};
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

/// A detached lease as it is stored in the ticket's row.
#[derive(Serialize, Deserialize)]
struct StoredLease {
    /// The engine that can attach it.
    engine: String,
    #[serde(flatten)]
    lease: LeaseRef,
}

impl StoredLease {
    fn parse(text: &str) -> Result<Self, LockError> {
        serde_json::from_str(text).map_err(|error| LockError(error.to_string()))
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
        let stored = StoredLease { engine: self.promises().engine.to_owned(), lease };
        let lease = serde_json::to_string(&stored).map_err(|error| LockError(error.to_string()))?;
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
            if self.promises().detachable.holds {
                return self.is_held(ticket).await;
            }
            let seen = self.locks.inspect(&self.name(ticket)).await?;
            let token = seen.and_then(|seen| seen.token).map(|token| token.get());
            return Ok(token.is_some() && token == reservation.token);
        };
        let Some(lease) = self.attach(lease).await? else { return self.is_held(ticket).await };
        match lease.check().await {
            Ok(left) => Ok(!left.is_zero()),
            Err(Error::NotHeld(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether anybody holds the lock. Enough for a reservation of another engine: if its holder has
    /// changed, the ticket's row is about to, and the fence decides.
    async fn is_held(&self, ticket: TicketId) -> Result<bool, LockError> {
        let lock = self.locks.lock(self.name(ticket)).ttl(SESSION_TTL);
        let Some(guard) = lock.try_acquire().await? else { return Ok(true) };
        guard.release().await?;
        Ok(false)
    }

    /// Releases a detached lease. If the engine does not answer, or the lease is another engine's, it
    /// ends by itself.
    pub(crate) async fn release(&self, lease: &str) {
        let released = match self.attach(lease).await {
            Ok(Some(lease)) => lease.release().await.map_err(LockError::from),
            Ok(None) => Err(LockError("it was taken through another protocol".to_owned())),
            Err(error) => Err(error),
        };
        if let Err(error) = released {
            tracing::debug!("a lock was not released and ends by itself: {error}");
        }
    }

    /// `None` if the lease is another engine's.
    async fn attach(&self, lease: &str) -> Result<Option<holdfast_locks::Lease>, LockError> {
        let StoredLease { engine, lease } = StoredLease::parse(lease)?;
        if engine != self.promises().engine {
            return Ok(None);
        }
        Ok(Some(self.locks.attach(lease).await?))
    }

    /// Who holds a seat, and who waits for it.
    pub(crate) async fn inspect(&self, ticket: TicketId) -> Result<Option<Inspection>, LockError> {
        let mut seen = self.viewer.inspect(&self.name(ticket)).await?;
        // A Redis key's value is the label and a random number, and other doors show both. Whoever knows
        // the number can release the lock.
        if let Some(holder) = seen.as_mut().and_then(|seen| seen.holder.as_mut())
            && let Some((label, nonce)) = holder.rsplit_once('/')
            && nonce.len() >= 32
            && nonce.bytes().all(|byte| byte.is_ascii_hexdigit())
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
