//! gRPC statuses, as the session's failures.

use crate::session::{Failure, FailureKind};
use tonic::Status;

/// What a status means for the client.
pub(crate) fn failure(status: &Status) -> Failure {
    let kind = FailureKind::of_status(status.code() as i32);
    Failure { kind, message: with_causes(status.message().to_owned(), status) }
}

/// A server that could not be reached.
pub(crate) fn unreachable(server: &str, error: &dyn std::error::Error) -> Failure {
    let message = format!("{server}: {}", with_causes(error.to_string(), error));
    Failure { kind: FailureKind::TryElsewhere, message }
}

/// An error with all its causes: the outermost of a failed connection says only that it failed.
pub(crate) fn with_causes(mut message: String, error: &dyn std::error::Error) -> String {
    let mut cause = error.source();
    while let Some(error) = cause {
        let why = error.to_string();
        // Some errors already include their cause.
        if !message.ends_with(&why) {
            message = format!("{message}: {why}");
        }
        cause = error.source();
    }
    message
}
