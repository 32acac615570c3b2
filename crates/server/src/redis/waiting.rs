//! HOLDFAST.ACQUIRE: a place in the line. The wait is the connection's: when that goes, so does
//! the wait.

use super::door::Door;
use super::words;
use crate::engine::Turn;
use crate::waits::{self, Taking};
use holdfast_core::{How, Standing, Token};
use holdfast_redis::acquiring::{Acquiring, Found};
use holdfast_redis::resp::Reply;
use std::time::Duration;
use tokio::time::timeout;

/// How often a ticket of an earlier connection may go while this one begins to wait for it.
const TRIES_MAX: usize = 10;

/// Stands in line until it is served or its time is over. Whoever drops this gives up.
pub(super) async fn acquire(door: &Door, acquiring: &Acquiring) -> Reply {
    for _ in 0..TRIES_MAX {
        let sought = acquiring.clone();
        let found = match door.api.read(move |node| sought.find(node.state())).await {
            Ok(found) => found,
            Err(failure) => return words::not_acquired(&failure),
        };
        let reply = match found {
            Some(Found::Held(reply)) => Some(reply),
            Some(Found::Waiting(token)) => wait_for(door, acquiring, token).await,
            None => Some(draw(door, acquiring).await),
        };
        if let Some(reply) = reply {
            return reply;
        }
    }
    Reply::Error(words::CONTENDED)
}

async fn draw(door: &Door, acquiring: &Acquiring) -> Reply {
    let taking = Taking::Acquire(acquiring.acquire(None));
    match waits::take(&door.api, None, taking).await {
        Ok(Standing::Held(grant)) => acquiring.granted(&grant),
        Ok(Standing::Waiting { .. } | Standing::Over { .. }) => Reply::Null,
        Err(failure) => words::not_acquired(&failure),
    }
}

/// Waits for a ticket that an earlier connection has drawn. None if it is gone meanwhile.
async fn wait_for(door: &Door, acquiring: &Acquiring, token: Token) -> Option<Reply> {
    let turn = door.api.handle.turn_of(token).await.ok()??;
    match timeout(Duration::from_millis(acquiring.wait_ms), turn).await {
        Ok(Ok(Turn::Granted(grant))) => Some(acquiring.granted(&grant)),
        Ok(Ok(Turn::Ended(ended))) if ended.how == How::TimedOut => Some(Reply::Null),
        Ok(_) => None,
        Err(_) => Some(Reply::Null),
    }
}
