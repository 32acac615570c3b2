//! Taking a lock: the waiting is done by PostgreSQL.

use super::Sessions;
use super::hold::AdvisoryHold;
use super::inspect::inspect;
use crate::clock::Moment;
use crate::driver::{Acquired, Held, Request};
use crate::drivers::failure::Failure;
use crate::drivers::postgres::errors::statement_error;
use crate::drivers::postgres::session::Session;
use crate::error::Error;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;

const TRY: &str = "SELECT pg_try_advisory_lock(hashtextextended($1::text, 0))";
const WAIT: &str = "SELECT 1 FROM pg_advisory_lock(hashtextextended($1::text, 0))";

/// The pause before an unreachable server is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

pub(super) async fn acquire(
    sessions: &Arc<Sessions>,
    request: &Request,
) -> Result<Acquired, Error> {
    let mut unreachable_since = None;
    loop {
        let error = match attempt(sessions, request).await {
            Err(Error::Unreachable(why)) => Error::Unreachable(why),
            definite => return definite,
        };
        // A place in line is lost with its connection: back to the end of it.
        let since = *unreachable_since.get_or_insert_with(Moment::now);
        if request.is_given_up() || since.plus(sessions.server.timeout).has_passed() {
            return Err(error);
        }
        request.pause(RETRY_PAUSE, pending()).await;
    }
}

async fn attempt(sessions: &Arc<Sessions>, request: &Request) -> Result<Acquired, Error> {
    let session = sessions.session(&request.label).await?;
    let mut sent = Moment::now();
    let taken = match session.query(TRY, &[&request.name]).await {
        Ok(rows) => rows.first().is_some_and(|row| row.get(0)),
        Err(failure) => return Err(abandon(sessions, session, request, failure).await),
    };
    if !taken {
        if request.is_given_up() {
            sessions.keep(session);
            return busy(sessions, request).await;
        }
        match wait(sessions, &session, request).await {
            Ok(true) => {}
            Ok(false) => return busy(sessions, request).await,
            Err(failure) => return Err(abandon(sessions, session, request, failure).await),
        }
        sent = Moment::now();
        // This shows that the session is alive now; when the lock was granted is not known.
        if let Err(failure) = session.execute("").await {
            return Err(abandon(sessions, session, request, failure).await);
        }
    }
    let (hold, validity) =
        AdvisoryHold::start(sessions.clone(), session, request.name.clone(), sent, request.ttl);
    Ok(Acquired::Held(Held { hold, token: None, ending: None, validity }))
}

/// Waits in PostgreSQL's queue. Returns false if the wait was over first: then nothing is left in
/// line once the session is dropped. It must not be reused, as the cancellation may arrive late.
async fn wait(sessions: &Sessions, session: &Session, request: &Request) -> Result<bool, Failure> {
    let server = &sessions.server;
    let failed = |error: tokio_postgres::Error| statement_error(&server.name, &error);
    let values: [&(dyn ToSql + Sync); 1] = [&request.name];
    let mut waiting = Box::pin(session.client.query(WAIT, &values));
    tokio::select! {
        granted = &mut waiting => return granted.map(|_| true).map_err(failed),
        () = request.given_up() => {}
    }
    server.cancel(session.client.cancel_token()).await;
    match timeout(server.timeout, waiting).await {
        Ok(Ok(_)) => Ok(false),
        Ok(Err(error)) => match failed(error) {
            Failure::Definite(_) => Ok(false),
            ambiguous => Err(ambiguous),
        },
        Err(_) => {
            let why = format!("{}: a cancelled wait was not confirmed", server.name);
            Err(Failure::Ambiguous(Error::Unreachable(why)))
        }
    }
}

async fn busy(sessions: &Sessions, request: &Request) -> Result<Acquired, Error> {
    let seen = inspect(sessions, &request.name).await.ok().flatten();
    Ok(Acquired::Busy { holder: seen.and_then(|lock| lock.holder) })
}

/// Ends a session that may hold the lock, or may still get it.
async fn abandon(
    sessions: &Sessions,
    session: Arc<Session>,
    request: &Request,
    failure: Failure,
) -> Error {
    let Failure::Ambiguous(cause) = failure else { return failure.into_error() };
    session.abort();
    let backend = session.backend;
    if sessions.end(backend).await.is_ok() {
        return cause;
    }
    let until = AdvisoryHold::over_by(request.ttl).wall_clock();
    Error::Unsure { until, cause: cause.to_string() }
}
