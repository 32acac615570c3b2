//! HOLDFAST.ACQUIRE: a place in the line. The wait is the connection's: when that goes, so does
//! the wait.

use super::door::Door;
use crate::engine::{EventSink, Taken};
use holdfast_core::{Command, How, Standing};
use holdfast_gateway::ApiError;
use holdfast_redis::acquiring::Acquiring;
use holdfast_redis::messages;
use holdfast_redis::resp::Reply;
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;
use tokio::time::sleep;

/// How often another connection with the same owner id may come in between.
const TRIES_MAX: usize = 10;

/// When others with the same owner id are looked for, each time after the last. What was on its way
/// for longer is cancelled because its connection is gone.
const OTHERS_SOUGHT_AFTER: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(900),
    Duration::from_secs(4),
    Duration::from_secs(15),
];

/// What a connection gets when it is not served.
type NotServed = Reply;

/// Stands in line for a connection until it is served or its time is over. Whoever drops this
/// gives up.
pub(super) async fn acquire(
    door: &Door,
    connection: &EventSink,
    acquiring: &Acquiring,
) -> Result<Taken, NotServed> {
    for _ in 0..TRIES_MAX {
        let sought = acquiring.clone();
        let found = door.engine.read(move |node| sought.find(node.state())).await;
        let Some(earlier) = found.map_err(|error| messages::not_acquired(&error.into()))? else {
            return draw(door, connection, acquiring).await;
        };
        let take_over = acquiring.take_over(earlier).map_err(Reply::Error)?;
        door.engine.unfollow(connection, earlier.token);
        // If it is refused, the ticket has been served or has ended meanwhile.
        let asked = door.engine.submit(None, take_over).await;
        let _refused = asked.map_err(|error| messages::not_acquired(&error.into()))?;
    }
    Err(Reply::Error(messages::CONTENDED))
}

async fn draw(
    door: &Door,
    connection: &EventSink,
    acquiring: &Acquiring,
) -> Result<Taken, NotServed> {
    let command = Command::Acquire(acquiring.acquire(None));
    // If it is taken away, the client hears of it by the end of its connection.
    let follow = Some(connection.clone());
    // When this connection goes, this is dropped.
    let taken: Result<Taken, ApiError> = tokio::select! {
        taken = door.engine.take(None, command, follow) => taken,
        never = end_others(door, acquiring) => match never {},
    };
    match taken {
        Ok(taken) if matches!(taken.standing(), Standing::Held(_)) => Ok(taken),
        Ok(taken) => {
            taken.delivered();
            Err(Reply::Null)
        }
        // Nobody else can cancel it: its owner asks through another connection.
        Err(error) if error.how == Some(How::Cancelled) => Err(acquiring.taken_over()),
        Err(error) => Err(messages::not_acquired(&error)),
    }
}

/// An earlier request may have been on its way when this one looked for its ticket, and have drawn
/// one after all: then both stand in the line, and the one in front has nobody who would give it
/// back. Whoever asks again ends the first of them, even if that is its own: it is told so then.
async fn end_others(door: &Door, acquiring: &Acquiring) -> Infallible {
    for after in OTHERS_SOUGHT_AFTER.iter().filter(|_| acquiring.retry) {
        sleep(*after).await;
        let sought = acquiring.clone();
        let found = door.engine.peek(move |node| sought.find_other(node.state())).await;
        if let Ok(Some(other)) = found
            && let Ok(take_over) = acquiring.take_over(other)
        {
            // If it fails, it is tried again.
            let _ = door.engine.submit(None, take_over).await;
        }
    }
    pending().await
}
