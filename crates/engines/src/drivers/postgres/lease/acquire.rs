//! Taking a lock and waiting for it.

use super::hold::LeaseHold;
use super::table::{Sql, Table, left, ttl_ms};
use crate::clock::Moment;
use crate::driver::{Acquired, Held, Hold, Request, Validity, label_of};
use crate::drivers::failure::Failure;
use crate::drivers::local_queue::LocalQueues;
use crate::error::Error;
use crate::guard::Ending;
use crate::token::Token;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use tokio_postgres::Row;

/// The pause before an unreachable server is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The shortest pause between two attempts on a lease that is about to end.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(5);

/// A waiter tries again after this long, notified or not.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The result of one attempt.
enum Attempt {
    Held(Held),
    Busy {
        holder: String,
        left: Duration,
    },
    /// Someone else was faster, after the statement had begun.
    Raced,
}

pub(super) async fn acquire(
    table: &Arc<Table>,
    lines: &LocalQueues,
    request: &Request,
) -> Result<Acquired, Error> {
    let place = lines.enter(&request.name);
    let turn = place.turn(request).await;
    let mut unreachable_since = None;
    loop {
        let attempt = take(table, request).await;
        let given_up = request.is_given_up() || turn.is_none();
        let pause = match attempt {
            Ok(Attempt::Held(held)) => return Ok(Acquired::Held(held)),
            Ok(Attempt::Busy { holder, .. }) if given_up => {
                return Ok(Acquired::Busy { holder: Some(label_of(&holder)) });
            }
            Ok(Attempt::Raced) if given_up => return Ok(Acquired::Busy { holder: None }),
            Ok(Attempt::Busy { left, .. }) => {
                unreachable_since = None;
                left.clamp(LOOK_PAUSE_MIN, LOOK_EVERY)
            }
            Ok(Attempt::Raced) => continue,
            Err(Error::Unreachable(why)) => {
                let since = *unreachable_since.get_or_insert_with(Moment::now);
                if given_up || since.plus(table.timeout()).has_passed() {
                    return Err(Error::Unreachable(why));
                }
                RETRY_PAUSE
            }
            Err(error) => return Err(error),
        };
        // At the end of the wait there is one more attempt, which also gets the holder's label.
        request.pause(pause, place.changed()).await;
    }
}

async fn take(table: &Arc<Table>, request: &Request) -> Result<Attempt, Error> {
    let sent = Moment::now();
    let (owner, ttl) = (request.owner(), ttl_ms(request.ttl));
    let taken = table.run(Sql::Take, &[&request.name, &owner, &request.note, &ttl]).await;
    match taken {
        Ok(rows) => {
            let Some(row) = rows.first() else { return Ok(Attempt::Raced) };
            Ok(match row.get::<_, Option<i64>>(0) {
                Some(token) => {
                    let validity = Validity::of_ttl(sent, request.ttl);
                    let hold = LeaseHold::new(table.clone(), request.name.clone(), owner);
                    Attempt::Held(held(hold, token, ending(row, 1), validity))
                }
                None => Attempt::Busy { holder: row.get(5), left: left(row.get(6)) },
            })
        }
        Err(Failure::Ambiguous(cause)) => settle(table, request, cause).await,
        Err(Failure::Definite(error)) => Err(error),
    }
}

/// Finds out from the row what happened to a take whose reply was lost.
async fn settle(table: &Arc<Table>, request: &Request, cause: Error) -> Result<Attempt, Error> {
    let over_by = Validity::unsure(request.ttl);
    let give_up = Moment::now().plus(table.timeout());
    let hold = LeaseHold::new(table.clone(), request.name.clone(), request.owner());
    loop {
        match look(table, request).await {
            Ok(None) => return Ok(Attempt::Raced),
            Ok(Some(row)) => match hold.extend(request.ttl).await {
                Ok(validity) => {
                    let (token, ending) = (row.get(1), ending(&row, 2));
                    return Ok(Attempt::Held(held(hold, token, ending, validity)));
                }
                Err(Error::NotHeld(_)) => return Ok(Attempt::Raced),
                Err(_) => {}
            },
            Err(_) => {}
        }
        if give_up.has_passed() {
            request.finish_later(undo(hold, over_by));
            let (until, cause) = (over_by.wall_clock(), cause.to_string());
            return Err(Error::Unsure { until, cause });
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// The row, if it is ours.
async fn look(table: &Table, request: &Request) -> Result<Option<Row>, Error> {
    let rows = table.run(Sql::Check, &[&request.name, &request.owner()]).await;
    Ok(rows.map_err(Failure::into_error)?.into_iter().next())
}

/// Gives back what a take with an unknown outcome may have taken.
async fn undo(hold: LeaseHold, over_by: Moment) {
    while !matches!(hold.release().await, Ok(()) | Err(Error::NotHeld(_))) {
        if over_by.has_passed() {
            return;
        }
        sleep(RETRY_PAUSE).await;
    }
}

fn held(hold: LeaseHold, token: i64, ending: Option<Ending>, validity: Validity) -> Held {
    Held { hold: Arc::new(hold), token: Some(number(token)), ending, validity }
}

/// The previous holder, from column `first` onwards.
fn ending(row: &Row, first: usize) -> Option<Ending> {
    let token = row.get::<_, Option<i64>>(first).map(number)?;
    let label = row.get::<_, Option<String>>(first + 1).map(|owner| label_of(&owner));
    let died = row.get::<_, Option<bool>>(first + 3).unwrap_or(false);
    Some(if died {
        Ending::of_death(Some(token), label, row.get(first + 2))
    } else {
        Ending::of_release(Some(token), label)
    })
}

pub(super) fn number(token: i64) -> Token {
    Token::new(u64::try_from(token).unwrap_or(0))
}
