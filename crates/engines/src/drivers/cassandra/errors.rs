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

/// Whether a node does not know the table of a statement, or not yet. While a table is being
/// created, a node may list it and still fail with an error of its own ("Unknown CF").
pub(super) fn is_missing_table(error: &PrepareError) -> bool {
    let PrepareError::AllAttemptsFailed {
        first_attempt: RequestAttemptError::DbError(answer, why),
    } = error
    else {
        return false;
    };
    match answer {
        DbError::Invalid => why.contains("does not exist") || why.contains("unconfigured table"),
        DbError::ServerError => true,
        _ => false,
    }
}

pub(super) fn prepare_error(cluster: &str, error: &PrepareError) -> Error {
    let PrepareError::AllAttemptsFailed {
        first_attempt: RequestAttemptError::DbError(answer, why),
    } = error
    else {
        return Error::Unreachable(format!("{cluster}: {error}"));
    };
    match answer {
        DbError::SyntaxError | DbError::Invalid | DbError::ConfigError => Error::Refused(format!(
            "{cluster}: {why}; the keyspace has a table of this name that was not made for locks"
        )),
        DbError::Unauthorized | DbError::AuthenticationError => Error::Refused(format!(
            "{cluster}: {why}; grant the role of the URL the right to do so"
        )),
        _ => Error::Unreachable(format!("{cluster}: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(answer: DbError, why: &str) -> PrepareError {
        let first_attempt = RequestAttemptError::DbError(answer, why.to_owned());
        PrepareError::AllAttemptsFailed { first_attempt }
    }

    /// A client that connected while another one created the tables was told that the table was
    /// not made for locks, because the node could not use it yet.
    #[test]
    fn table_that_is_being_created_is_waited_for() {
        let error = answered(
            DbError::ServerError,
            "java.lang.IllegalArgumentException: Unknown CF 37fdd7a0-e344-11f1-8eb6-e5c91beda82c",
        );
        assert!(is_missing_table(&error));
        assert!(matches!(prepare_error("Cassandra", &error), Error::Unreachable(_)));
    }

    #[test]
    fn table_of_another_shape_is_refused_at_once() {
        let error = answered(DbError::Invalid, "Undefined column name client_id in table a.locks");
        assert!(!is_missing_table(&error));
        assert!(matches!(prepare_error("Cassandra", &error), Error::Refused(_)));
    }
}
