//! HOLDFAST.ACQUIRE: a place in the line. The wait belongs to the connection and ends with it.

use crate::engine::{AcquireResult, Engine, EventSink};
use holdfast_core::{Command, TicketStatus};
use holdfast_gateway::ApiError;
use holdfast_redis::acquiring::Acquiring;
use holdfast_redis::messages;
use holdfast_redis::resp::Reply;
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;
use tokio::time::sleep;

/// How often an attempt may be thwarted by another connection with the same owner id.
const TRIES_MAX: usize = 10;

/// When to look for other tickets with the same owner id; each delay starts after the last look.
/// Anything that was on its way for longer is cancelled, because its connection is gone.
const OTHERS_SOUGHT_AFTER: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(900),
    Duration::from_secs(4),
    Duration::from_secs(15),
];

/// The reply to a client that is not served.
type NotServed = Reply;

/// Waits in line for a connection until its ticket is served or its time is over. Dropping the
/// future gives up the wait.
pub(super) async fn acquire(
    engine: &Engine,
    connection: &EventSink,
    acquiring: &Acquiring,
) -> Result<AcquireResult, NotServed> {
    for _ in 0..TRIES_MAX {
        let sought = acquiring.clone();
        let found = engine.read(move |node| sought.find(node.state())).await;
        let Some(earlier) = found.map_err(|error| messages::not_acquired(&error.into()))? else {
            return draw(engine, connection, acquiring).await;
        };
        let take_over = acquiring.take_over(earlier).map_err(Reply::Error)?;
        engine.unfollow(connection, earlier.token);
        // A refusal means that the ticket has been served or has ended meanwhile.
        let asked = engine.submit(None, take_over).await;
        let _refused = asked.map_err(|error| messages::not_acquired(&error.into()))?;
    }
    Err(Reply::Error(messages::CONTENDED))
}

async fn draw(
    engine: &Engine,
    connection: &EventSink,
    acquiring: &Acquiring,
) -> Result<AcquireResult, NotServed> {
    let command = Command::Acquire(acquiring.acquire(None));
    // If the lock is taken away, the client finds out because its connection is closed.
    let follow = Some(connection.clone());
    // Dropped when this connection ends.
    let taken: Result<AcquireResult, ApiError> = tokio::select! {
        taken = engine.take(None, command, follow) => taken,
        never = end_others(engine, acquiring) => match never {},
    };
    match taken {
        Ok(taken) if matches!(taken.status(), TicketStatus::Held(_)) => Ok(taken),
        Ok(taken) => {
            let reply = match *taken.status() {
                TicketStatus::Over { how, .. } => acquiring.not_served(how),
                _ => Reply::Null,
            };
            taken.delivered();
            Err(reply)
        }
        Err(ApiError { how: Some(how), .. }) => Err(acquiring.not_served(how)),
        Err(error) => Err(messages::not_acquired(&error)),
    }
}

/// An earlier request may have been on its way when this one looked for its ticket, and may have
/// drawn one after all: then both are in line, and nobody would release the one in front. So a
/// retry ends the first of them, even if that is its own; its client is then told that it was taken
/// over.
async fn end_others(engine: &Engine, acquiring: &Acquiring) -> Infallible {
    for after in OTHERS_SOUGHT_AFTER.iter().filter(|_| acquiring.retry) {
        sleep(*after).await;
        let sought = acquiring.clone();
        let found = engine.peek(move |node| sought.find_other(node.state())).await;
        if let Ok(Some(other)) = found
            && let Ok(take_over) = acquiring.take_over(other)
        {
            // If this fails, the next round tries again.
            let _ = engine.submit(None, take_over).await;
        }
    }
    pending().await
}
