//! The lock under each seat, on whatever engine LOCK_TYPE names.
//!
//! A lease is detached from this process and stored in the ticket's row, so that another instance can
//! book. An engine whose locks live by a session can't do that: there, the guard stays here, and other
//! instances ask the engine who holds the lock.
//!
//! Instances with different engines can share one line, through the doors of one Holdfast. A lease of
//! another engine can't be attached here. So every reservation has a random id, its hold, in the lock's
//! label and in the ticket's row: whoever sees the hold in the label knows that this reservation, and no
//! other and nobody's probe, has the lock.

use crate::domain::{Reservation, Ticket};
use crate::line;
use holdfast_locks::{Error, Guard, Inspection, LeaseRef, Locks, Promises};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::PoisonError;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

/// How long to wait for a lock service that does not answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

/// How long a lock outlives an instance that crashed, if the lock lives by a session. It is the same for
/// all of them, so that they share one session and learn together that the service has lost it.
const SESSION_TTL: Duration = Duration::from_secs(10);

/// How long the lock that carries the line's id is kept without an instance.
const LINE_TTL: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long a look that is only shown may take: a page does not wait for a lock service that hangs.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// How often to ask for the line's id while it changes hands.
const LINE_TRIES: u32 = 20;

/// The lock service does not answer, or refuses.
#[derive(Debug, Clone)]
pub(crate) struct LockError(String);

impl LockError {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

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
    /// The random id in the lock's label.
    pub(crate) hold: String,
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
    /// The lock that carries the line's id, if this instance took it and it can't be detached.
    line: Mutex<Option<Guard>>,
    /// The lock that stands for this instance; `None` before it has joined. It was seen together with the
    /// line: a service that still has it has not lost its data since.
    witness: std::sync::Mutex<Option<Guard>>,
}

impl SeatLocks {
    pub(crate) fn new(locks: Locks, viewer: Locks, database: &str, ttl: Duration) -> Self {
        let prefix = format!("ticketing/{database}");
        Self {
            locks,
            viewer,
            prefix,
            ttl,
            line: Mutex::default(),
            witness: std::sync::Mutex::default(),
        }
    }

    pub(crate) fn promises(&self) -> &'static Promises {
        self.locks.promises()
    }

    /// Tickets that `init` has made have other locks than those that it deleted.
    fn name(&self, ticket: &Ticket) -> String {
        match ticket.generation {
            0 => format!("{}/ticket/{}", self.prefix, ticket.id),
            made => format!("{}/ticket/{}-{made}", self.prefix, ticket.id),
        }
    }

    /// Takes the lock if it is free. It never waits.
    pub(crate) async fn take(
        &self,
        ticket: &Ticket,
        client: &str,
    ) -> Result<Option<TakenSeat>, LockError> {
        let detachable = self.promises().detachable.holds;
        let hold = crate::random_hex();
        let lock = self.locks.lock(self.name(ticket)).label(label(client, &hold));
        let lock = if detachable { lock.ttl(self.ttl).fixed() } else { lock.ttl(SESSION_TTL) };
        let Some(guard) = lock.try_acquire().await? else { return Ok(None) };
        let token = guard.token().map(|token| token.get());
        let ending = guard.ending().map(|ending| {
            let how = if ending.died { "expired" } else { "released" };
            let who = ending.label.as_deref().map(client_in);
            let who = who.map_or_else(String::new, |client| format!(", {client}"));
            let token = ending.token.map_or_else(String::new, |token| format!(", token {token}"));
            format!("{how}{who}{token}")
        });
        if !detachable {
            return Ok(Some(TakenSeat { token, lease: None, hold, guard: Some(guard), ending }));
        }
        let lease = guard.detach().await.map_err(|(_, error)| error)?;
        let stored = StoredLease { engine: self.promises().engine.to_owned(), lease };
        let lease = serde_json::to_string(&stored).map_err(|error| LockError(error.to_string()))?;
        Ok(Some(TakenSeat { token, lease: Some(lease), hold, guard: None, ending }))
    }

    /// Gives back a seat whose reservation was not written.
    pub(crate) async fn give_back(&self, seat: TakenSeat) {
        match (seat.guard, seat.lease) {
            (Some(guard), _) => KeptSeat(guard).release().await,
            (None, Some(lease)) => self.release(&lease).await,
            (None, None) => {}
        }
    }

    /// Asks the engine whether this reservation still has the lock.
    pub(crate) async fn lives(
        &self,
        ticket: &Ticket,
        reservation: &Reservation,
    ) -> Result<bool, LockError> {
        if let Some(lease) = &reservation.lease
            && let Some(lease) = self.attach(lease).await?
        {
            return match lease.check().await {
                Ok(left) => Ok(!left.is_zero()),
                Err(Error::NotHeld(_)) => Ok(false),
                Err(error) => Err(error.into()),
            };
        }
        let Some(hold) = &reservation.hold else { return Ok(false) };
        let label = label(&reservation.client, hold);
        let name = self.name(ticket);
        let holder = match self.locks.inspect(&name).await? {
            Some(Inspection { holder, token, .. }) => {
                let token = token.map(|token| token.get());
                if token.is_some() && reservation.token.is_some() && token != reservation.token {
                    return Ok(false);
                }
                holder
            }
            // ZooKeeper's door shows the tickets of other doors only to those who stand in line.
            None if !self.promises().detachable.holds && reservation.lease.is_some() => {
                self.holder_ahead(&name).await?
            }
            None => None,
        };
        Ok(holder.is_some_and(|holder| is_of(&holder, &label)))
    }

    /// Stands in line for a moment, and says who is ahead; `None` if nobody is. The label of the one who
    /// looks is no reservation's.
    async fn holder_ahead(&self, name: &str) -> Result<Option<String>, LockError> {
        let looking = self.locks.lock(name).ttl(SESSION_TTL).label("looking");
        match looking.wait(Duration::ZERO).acquire().await {
            Ok(guard) => guard.release().await.map(|()| None).map_err(Into::into),
            Err(Error::TimedOut { holder }) => Ok(holder),
            Err(error) => Err(error.into()),
        }
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

    /// Who holds a seat, and who waits for it, for display.
    pub(crate) async fn inspect(&self, ticket: &Ticket) -> Result<Option<Inspection>, LockError> {
        let name = self.name(ticket);
        let looking = timeout(LOOK_TIMEOUT, self.viewer.inspect(&name)).await;
        let mut seen = looking.map_err(|_| LockError("no answer within 1s".to_owned()))??;
        // Whoever knows all of a Redis key's value can release the lock.
        if let Some(holder) = seen.as_mut().and_then(|seen| seen.holder.as_mut()) {
            *holder = client_in(holder).to_owned();
        }
        for waiter in seen.iter_mut().flat_map(|seen| seen.line.iter_mut().flatten()) {
            *waiter = client_in(waiter).to_owned();
        }
        Ok(seen)
    }

    /// Asks the engine anything, to see that it answers.
    pub(crate) async fn ping(&self) -> Result<(), LockError> {
        self.locks.inspect(&format!("{}/ping", self.prefix)).await?;
        Ok(())
    }

    /// Takes a lock that stands for an instance. Its name is a new one each time: the last one may still be
    /// held by a session that this process has lost.
    pub(crate) async fn take_witness(&self, instance: &str) -> Result<Guard, LockError> {
        let name = format!("{}/instance/{instance}-{}", self.prefix, crate::random_hex());
        let lock = self.locks.lock(name).label(instance);
        let taken = lock.ttl(SESSION_TTL).try_acquire().await?;
        taken.ok_or_else(|| LockError::new("it does not give a lock that nobody has"))
    }

    /// Keeps a witness that was taken before the line was seen.
    pub(crate) fn keep_witness(&self, witness: Guard) {
        *self.witness() = Some(witness);
    }

    /// Whether the witness is certainly held.
    pub(crate) fn witness_lives(&self) -> bool {
        self.witness().as_ref().is_some_and(|witness| !witness.is_lost())
    }

    /// Whether the lock service remembers the instance.
    pub(crate) async fn remembers(&self, instance: &str) -> Result<bool, LockError> {
        let name = self.witness().as_ref().map(|witness| witness.name().to_owned());
        let Some(name) = name else { return Ok(false) };
        let holder = self.locks.inspect(&name).await?.and_then(|seen| seen.holder);
        Ok(holder.is_some_and(|holder| is_of(&holder, instance)))
    }

    pub(crate) async fn release_witness(&self) {
        let witness = self.witness().take();
        if let Some(witness) = witness {
            let _ = witness.release().await;
        }
    }

    fn witness(&self) -> std::sync::MutexGuard<'_, Option<Guard>> {
        self.witness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a lock that was taken a moment ago is one of this line, and the line will stay: the service
    /// has the line's lock, or has not ended the session that the taken lock and the witness share.
    pub(crate) async fn is_certain(&self, line: &str) -> Result<bool, LockError> {
        if self.promises().detachable.holds {
            return Ok(self.line_id().await?.as_deref() == Some(line));
        }
        Ok(self.witness_lives())
    }

    /// The id of the line, even if only those who stand in line can see it; `None` if nobody has its lock.
    pub(crate) async fn line_id_ahead(&self) -> Result<Option<String>, LockError> {
        let holder = self.holder_ahead(&self.line_name()).await?;
        holder.map(|holder| read_id(&holder)).transpose()
    }

    /// The id of the lock service's line, as far as it can be seen without a change; `None` if it has
    /// none.
    pub(crate) async fn line_id(&self) -> Result<Option<String>, LockError> {
        match self.locks.inspect(&self.line_name()).await?.and_then(|seen| seen.holder) {
            Some(holder) => read_id(&holder).map(Some),
            None => Ok(None),
        }
    }

    /// The id of the lock service's line. If it has none, `id` becomes it.
    pub(crate) async fn line_id_or(&self, id: &str) -> Result<String, LockError> {
        let detachable = self.promises().detachable.holds;
        for _ in 0..LINE_TRIES {
            let lock = self.locks.lock(self.line_name()).label(line::label(id));
            let lock = if detachable { lock.ttl(LINE_TTL).fixed() } else { lock.ttl(SESSION_TTL) };
            match lock.wait(Duration::ZERO).acquire().await {
                Ok(guard) if detachable => {
                    guard.detach().await.map_err(|(_, error)| error)?;
                    return Ok(id.to_owned());
                }
                Ok(guard) => {
                    *self.line.lock().await = Some(guard);
                    return Ok(id.to_owned());
                }
                Err(Error::TimedOut { holder: Some(holder) }) => return read_id(&holder),
                Err(Error::TimedOut { holder: None }) => {
                    if let Some(seen) = self.line_id().await? {
                        return Ok(seen);
                    }
                    sleep(Duration::from_millis(50)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(LockError(format!("it does not say who holds {}", self.line_name())))
    }

    fn line_name(&self) -> String {
        format!("{}/line", self.prefix)
    }
}

fn read_id(holder: &str) -> Result<String, LockError> {
    let id = line::id_in(holder).map(str::to_owned);
    id.ok_or_else(|| LockError(format!("the lock that names the line is held by {holder:?}")))
}

/// The label of a reservation's lock. The slash at the end is for engines that cut off what follows the
/// last one.
fn label(client: &str, hold: &str) -> String {
    format!("{client}/{hold}/")
}

/// Whether a holder, however a door shows it, has this label. A Redis door shows it without the last
/// slash, or with the key's secret after it.
fn is_of(holder: &str, label: &str) -> bool {
    holder.starts_with(label.trim_end_matches('/'))
}

/// The client in the label of a reservation, as people want to see it.
fn client_in(label: &str) -> &str {
    let is_random = |part: &str| {
        part.is_empty() || (part.len() >= 32 && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let mut rest = label;
    while let Some((before, last)) = rest.rsplit_once('/')
        && is_random(last)
    {
        rest = before;
    }
    rest
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_are_recognised_through_every_door_and_never_shown() {
        let (hold, secret) = ("a".repeat(32), "b".repeat(32));
        for client in ["ana", "a/b", "ana/", "deadbeef"] {
            let own = label(client, &hold);
            let cut = own.trim_end_matches('/');
            for shown in [own.clone(), cut.to_owned(), format!("{own}/{secret}")] {
                assert!(is_of(&shown, &own), "{shown}");
                assert_eq!(client_in(&shown), client.trim_end_matches('/'), "{shown}");
            }
            assert!(!is_of(&label(client, &secret), &own));
            assert!(!is_of("looking", &own));
        }
    }
}
