//! A held lock: the session that holds it.

use super::Sessions;
use crate::clock::{Moment, safe_part};
use crate::driver::{Hold, Step, Validity, reached};
use crate::drivers::failure::Failure;
use crate::drivers::postgres::session::Session;
use crate::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;

const UNLOCK: &str = "SELECT pg_advisory_unlock(hashtextextended($1::text, 0))";

/// How long the server may take to notice that a client's machine is gone, by its keepalive
/// settings.
const SERVER_NOTICES: Duration = Duration::from_secs(30);

pub(super) struct AdvisoryHold {
    sessions: Arc<Sessions>,
    name: String,
    lease: Arc<Lease>,
    /// Closes a session that has been silent for a TTL.
    closer: AbortHandle,
}

struct Lease {
    /// `None` once the lock is released: the session may then be used for another lock.
    session: Mutex<Option<Arc<Session>>>,
    /// When this process closes the session.
    deadline: Mutex<Moment>,
}

impl AdvisoryHold {
    pub(super) fn start(
        sessions: Arc<Sessions>,
        session: Arc<Session>,
        name: String,
        sent: Moment,
        ttl: Duration,
    ) -> (Arc<Self>, Validity) {
        let deadline = Mutex::new(Moment::now().plus(ttl));
        let lease = Arc::new(Lease { session: Mutex::new(Some(session)), deadline });
        let closer = tokio::spawn(close_at_deadline(lease.clone())).abort_handle();
        (Arc::new(Self { sessions, name, lease, closer }), Self::validity(sent, ttl))
    }

    fn validity(sent: Moment, ttl: Duration) -> Validity {
        Validity { valid_until: sent.plus(safe_part(ttl)), over_by: Self::over_by(ttl) }
    }

    /// When a session confirmed just now is certainly over, if it stays silent from now on.
    pub(super) fn over_by(ttl: Duration) -> Moment {
        Moment::now().plus(ttl + ttl / 10 + SERVER_NOTICES)
    }
}

impl Drop for AdvisoryHold {
    fn drop(&mut self) {
        self.closer.abort();
    }
}

async fn close_at_deadline(lease: Arc<Lease>) {
    while !lease.deadline().has_passed() {
        reached(Some(lease.deadline())).await;
    }
    if let Ok(session) = lease.session() {
        session.abort();
    }
}

impl Lease {
    fn deadline(&self) -> Moment {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self) -> Result<Arc<Session>, Error> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.clone().ok_or_else(|| Error::NotHeld("it was released".to_owned()))
    }

    /// The session, unless it is over.
    async fn live(&self) -> Result<Arc<Session>, Error> {
        let session = self.session()?;
        if session.is_over() { Err(Error::NotHeld(session.ended().await)) } else { Ok(session) }
    }
}

impl Hold for AdvisoryHold {
    fn extend(&self, ttl: Duration) -> Step<'_, Validity> {
        Box::pin(async move {
            let (session, sent) = (self.lease.live().await?, Moment::now());
            session.execute("").await.map_err(Failure::into_error)?;
            let deadline = Moment::now().plus(ttl);
            *self.lease.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
            Ok(Self::validity(sent, ttl))
        })
    }

    fn release(&self) -> Step<'_, ()> {
        Box::pin(async move {
            let session = self.lease.session()?;
            if session.is_over() {
                // The server may not have noticed yet.
                self.sessions.end(session.backend).await?;
                let why = "the connection was lost, and with it the lock";
                return Err(Error::NotHeld(why.to_owned()));
            }
            let released = match session.query(UNLOCK, &[&self.name]).await {
                Ok(rows) => rows.first().is_some_and(|row| row.get(0)),
                Err(failure) => {
                    session.abort();
                    return Err(failure.into_error());
                }
            };
            *self.lease.session.lock().unwrap_or_else(PoisonError::into_inner) = None;
            if !released {
                return Err(Error::NotHeld("the session does not hold the lock".to_owned()));
            }
            self.sessions.keep(session);
            Ok(())
        })
    }

    fn check(&self) -> Step<'_, Duration> {
        Box::pin(async move {
            self.lease.live().await?.execute("").await.map_err(Failure::into_error)?;
            Ok(self.lease.deadline().remaining())
        })
    }

    fn proof(&self) -> Option<String> {
        None
    }

    fn lost(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
        Box::pin(async {
            match self.lease.session() {
                Ok(session) => session.ended().await,
                Err(released) => released.to_string(),
            }
        })
    }
}
