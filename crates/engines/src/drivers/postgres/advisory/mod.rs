//! PostgreSQL's own advisory locks: one connection for each lock that is held or waited for.
//!
//! The lock's key is `hashtextextended(name, 0)`, 64 bits, so two names can share a lock (with a
//! million names the odds are one in 37 million). A person in psql can take part with
//! `SELECT pg_advisory_lock(hashtextextended('name', 0))`.
//!
//! The server has no TTL: the lock lasts as long as its session. The TTL is enforced by this
//! process: it counts on the lock only while the session answers, and closes a session that has not
//! answered for a TTL.

mod acquire;
mod hold;
mod inspect;

use super::server::Server;
use super::session::{Backend, Session};
use crate::driver::{Acquired, Driver, Hold, Request, Step};
use crate::drivers::failure::Failure;
use crate::error::Error;
use crate::locks::Inspection;
use crate::promises::{Promise, Promises};
use std::sync::{Arc, PoisonError};
use tokio::sync::Mutex;

pub(in crate::drivers) static PROMISES: Promises = Promises {
    engine: "postgres",
    recipe: "advisory",
    fair: Promise::yes("PostgreSQL's own queue"),
    token: Promise::no("advisory locks have no counter"),
    survives_failover: Promise::no("the lock ends with the server process that holds it"),
    reports_death: Promise::no("a session that ended leaves no trace"),
    detachable: Promise::no("the lock belongs to its connection"),
    lost_in_time: Promise::no(
        "when the server ends the session, it serves the next before the holder can know",
    ),
    clock: "none: the lock lives as long as its connection",
    after_crash: "nothing: the connection closes, and the lock is free",
    after_disconnect: "nothing, once the server notices",
    late_request: "nothing: a session with a request that nobody answered is ended",
};

pub(super) async fn connect(server: Server) -> Result<Arc<dyn Driver>, Error> {
    let (control, idle) = (Mutex::new(None), std::sync::Mutex::default());
    let sessions = Arc::new(Sessions { server, control, idle });
    sessions.control().await?;
    Ok(Arc::new(Advisory { sessions }))
}

struct Advisory {
    sessions: Arc<Sessions>,
}

struct Sessions {
    server: Server,
    /// For everything except the locks themselves.
    control: Mutex<Option<Arc<Session>>>,
    /// Sessions whose lock was released.
    idle: std::sync::Mutex<Vec<Arc<Session>>>,
}

/// How many sessions are kept for the next lock: opening one costs more than taking a lock.
const IDLE_MAX: usize = 4;

impl Sessions {
    async fn control(&self) -> Result<Arc<Session>, Error> {
        let mut control = self.control.lock().await;
        if let Some(session) = control.as_ref().filter(|session| !session.is_over()) {
            return Ok(session.clone());
        }
        let limit = Some(self.server.timeout);
        let session = Arc::new(Session::open(&self.server, "holdfast-locks", limit).await?);
        *control = Some(session.clone());
        Ok(session)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Session>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session for one lock.
    async fn session(&self, label: &str) -> Result<Arc<Session>, Error> {
        const RENAME: &str = "SELECT set_config('application_name', $1, false)";
        while let Some(session) = self.take_idle() {
            if session.query(RENAME, &[&label]).await.is_ok() {
                return Ok(session);
            }
        }
        Ok(Arc::new(self.open(label).await?))
    }

    fn take_idle(&self) -> Option<Arc<Session>> {
        self.idle().pop()
    }

    /// Keeps a session that no longer holds anything, for reuse.
    fn keep(&self, session: Arc<Session>) {
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX && !session.is_over() {
            idle.push(session);
        }
    }

    /// Opens a session that the server closes if the client's machine is gone.
    async fn open(&self, label: &str) -> Result<Session, Error> {
        /// Makes the server notice within about 25s that the client's machine is gone.
        const KEEPALIVE: &str = "
            SELECT set_config(wanted.name, wanted.value, false)
            FROM (VALUES ('tcp_keepalives_idle', '10'), ('tcp_keepalives_interval', '5'),
                ('tcp_keepalives_count', '3'), ('tcp_user_timeout', '25000')) AS wanted (name, value)
            JOIN pg_settings USING (name)";
        /// Makes the server notice a closed connection even while it waits for the lock. Not
        /// available on every version and platform.
        const CHECK_CLIENT: &str = "SET client_connection_check_interval = '1s'";
        let session = Session::open(&self.server, label, None).await?;
        session.execute(KEEPALIVE).await.map_err(Failure::into_error)?;
        match session.execute(CHECK_CLIENT).await {
            Ok(()) | Err(Failure::Definite(_)) => Ok(session),
            Err(Failure::Ambiguous(error)) => Err(error),
        }
    }

    /// Makes sure that a session, and with it its lock, is over.
    async fn end(&self, backend: Backend) -> Result<(), Error> {
        self.control().await?.end(backend).await
    }
}

impl Driver for Advisory {
    fn promises(&self) -> &'static Promises {
        &PROMISES
    }

    fn check(&self, _request: &Request) -> Result<(), Error> {
        Ok(())
    }

    fn acquire<'a>(&'a self, request: &'a Request) -> Step<'a, Acquired> {
        Box::pin(acquire::acquire(&self.sessions, request))
    }

    fn inspect<'a>(&'a self, name: &'a str) -> Step<'a, Option<Inspection>> {
        Box::pin(inspect::inspect(&self.sessions, name))
    }

    fn attach<'a>(&'a self, _name: &'a str, _proof: &'a str) -> Step<'a, Arc<dyn Hold>> {
        let why = PROMISES.detachable.because;
        Box::pin(
            async move { Err(Error::Unsupported(format!("this lease can't be attached: {why}"))) },
        )
    }
}
