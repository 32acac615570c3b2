//! Acquires over HTTP and gRPC: the wait ends when its connection does.

use super::connection::Connection;
use crate::doors::Context;
use holdfast_core::{Acquire, Command, RequestRef, TicketStatus, Wait};
use holdfast_gateway::{ApiError, Code};

/// Takes a lock with a command that draws a ticket (an acquire or an upgrade). Returns when the
/// lock is held, or when the wait or the earlier ticket of a retried request is over.
///
/// If the future is dropped before it returns, or the client closes its connection, a ticket that
/// only the caller can know of is given up.
pub(crate) async fn take(
    context: &Context,
    connection: &Connection,
    request: Option<RequestRef>,
    command: Command,
) -> Result<TicketStatus, ApiError> {
    // With a request id, a retry can find the wait again, so it does not end with its connection.
    let may_wait = !matches!(
        &command,
        Command::Acquire(Acquire { wait: Wait::Try, .. })
            | Command::Upgrade { wait: Wait::Try, .. }
    );
    let alone = request.is_none();
    let gone = async {
        match (alone, may_wait) {
            (true, true) => connection.closed_or_unknown().await,
            (true, false) => connection.closed().await,
            (false, _) => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = gone => Err(ApiError::new(Code::ConnectionClosed,
            "the client closed its connection, or sent too much behind its request",
            "keep the connection open, and send nothing on it until the answer is there",
        )),
        taken = context.engine.take(request, command, None) => Ok(taken?.delivered()),
    }
}
