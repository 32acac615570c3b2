//! What PostgreSQL's errors mean for a lock.

use crate::driver::seconds;
use crate::drivers::failure::Failure;
use crate::error::Error;
use std::error::Error as _;
use std::time::Duration;
use tokio_postgres::error::{DbError, SqlState};

pub(super) fn no_answer(server: &str, limit: Duration) -> Error {
    Error::Unreachable(format!(
        "{server}: no answer within {}; is it PostgreSQL that listens there?",
        seconds(limit)
    ))
}

/// Why a connection could not be opened.
pub(super) fn connect_error(server: &str, error: &tokio_postgres::Error) -> Error {
    if let Some(answer) = error.as_db_error() {
        return db_error(server, answer);
    }
    let kind = error.to_string();
    let cause = error.source().map_or_else(|| kind.clone(), ToString::to_string);
    match kind.as_str() {
        "invalid configuration" | "authentication error" => Error::Refused(format!(
            "{server}: {cause}; check user and password: `postgres://user:password@host/database`"
        )),
        "error performing TLS handshake" => Error::Refused(format!(
            "{server}: {cause}; check `sslmode` and `sslrootcert` in the URL"
        )),
        "error connecting to server" => {
            Error::Unreachable(format!("{server}: {cause}; is it running?"))
        }
        _ => Error::Unreachable(format!("{server}: {cause}; is it PostgreSQL that listens there?")),
    }
}

/// Why a statement failed, and whether it certainly had no effect.
pub(super) fn statement_error(server: &str, error: &tokio_postgres::Error) -> Failure {
    match error.as_db_error() {
        // The session was ended, possibly after the commit.
        Some(answer) if is_disconnect(answer.code()) => {
            Failure::Ambiguous(db_error(server, answer))
        }
        Some(answer) => Failure::Definite(db_error(server, answer)),
        None => {
            let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            Failure::Ambiguous(Error::Unreachable(format!("{server}: {cause}")))
        }
    }
}

fn is_disconnect(code: &SqlState) -> bool {
    let code = code.code();
    code.starts_with("08") || code.starts_with("57P")
}

fn db_error(server: &str, answer: &DbError) -> Error {
    let message = answer.message();
    let code = answer.code();
    let advice = match code.code() {
        "28P01" | "28000" => "check user, password and the server's pg_hba.conf",
        "3D000" => "create the database first, or name another one in the URL",
        "42501" => "grant the role of the URL the right to do so",
        "42P01" => "the table was dropped: connect again to create it",
        "42703" => "the table was not made for locks: name another one with `?table=`",
        "25006" => "this server is a standby: use the primary, or list all servers in the URL",
        "22P05" | "22021" => {
            return Error::Unsupported(format!(
                "{server}: {message}; the database's encoding can't store this text"
            ));
        }
        // Too many connections, shutdown, timeouts, conflicts: worth a retry.
        transient
            if ["08", "53", "57", "40", "55"].iter().any(|class| transient.starts_with(class)) =>
        {
            return Error::Unreachable(format!("{server}: {message}"));
        }
        _ => return Error::Refused(format!("{server}: {message} (SQLSTATE {})", code.code())),
    };
    Error::Refused(format!("{server}: {message}; {advice}"))
}
