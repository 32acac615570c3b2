//! What Cassandra's errors mean for a lock.

use crate::drivers::failure::Failure;
use crate::error::Error;
use scylla::errors::{DbError, ExecutionError, NewSessionError, PrepareError, RequestAttemptError};

/// Why a connection could not be opened.
pub(super) fn connect_error(cluster: &str, error: &NewSessionError) -> Error {
    let text = error.to_string();
    if text.contains("uthentication") || text.contains("credentials") {
        return Error::Refused(format!(
            "{cluster}: {text}; check user and password: `cassandra://user:password@host/keyspace`"
        ));
    }
    Error::Unreachable(format!(
        "{cluster}: {text}; is it running, and is it Cassandra that listens there?"
    ))
}

/// Why a statement failed, and whether it certainly had no effect.
pub(super) fn statement_error(cluster: &str, error: &ExecutionError) -> Failure {
    let unreachable = || Error::Unreachable(format!("{cluster}: {error}"));
    let refused = |why: &str| Error::Refused(format!("{cluster}: {why}"));
    match error {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(answer, why)) => match answer
        {
            DbError::SyntaxError | DbError::Invalid | DbError::ConfigError => {
                Failure::Definite(refused(why))
            }
            DbError::Unauthorized | DbError::AuthenticationError => Failure::Definite(refused(
                &format!("{why}; grant the role of the URL the right to do so"),
            )),
            DbError::Unavailable { .. } | DbError::Overloaded | DbError::IsBootstrapping => {
                Failure::Definite(Error::Unreachable(format!("{cluster}: {why}")))
            }
            _ => Failure::Ambiguous(Error::Unreachable(format!("{cluster}: {why}"))),
        },
        // Nothing was sent.
        ExecutionError::BadQuery(_)
        | ExecutionError::EmptyPlan
        | ExecutionError::PrepareError(_)
        | ExecutionError::ConnectionPoolError(_) => Failure::Definite(unreachable()),
        _ => Failure::Ambiguous(unreachable()),
    }
}

/// Whether a node does not know the table of a statement, or not yet.
pub(super) fn is_missing_table(error: &PrepareError) -> bool {
    matches!(
        error,
        PrepareError::AllAttemptsFailed {
            first_attempt: RequestAttemptError::DbError(DbError::Invalid, why),
        } if why.contains("does not exist") || why.contains("unconfigured table")
    )
}

pub(super) fn prepare_error(cluster: &str, error: &PrepareError) -> Error {
    match error {
        PrepareError::AllAttemptsFailed { first_attempt: RequestAttemptError::DbError(_, why) } => {
            Error::Refused(format!(
                "{cluster}: {why}; the keyspace has a table of this name that was not made for locks"
            ))
        }
        _ => Error::Unreachable(format!("{cluster}: {error}")),
    }
}
