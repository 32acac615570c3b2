//! Taking a lock and waiting for it. Cassandra can't send notifications, so one waiter per process
//! polls.

use super::hold::LwtHold;
use super::tables::{IN_FLIGHT, Mark, Tables, Tokens, token};
use crate::clock::Moment;
use crate::driver::{Acquired, Held, Hold, Request, Validity, label_of};
use crate::drivers::cassandra::{jittered, over_by, validity};
use crate::drivers::failure::Failure;
use crate::error::Error;
use crate::guard::Ending;
use crate::token::Token;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// The average pause between two reads of a held lock. These are plain quorum reads.
const POLL_EVERY: Duration = Duration::from_millis(200);

/// The pause before following up on a request that got no reply.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The result of one attempt.
enum Attempt {
    Held(Held),
    /// Held by another owner; `None` if it is not known which.
    Busy(Option<String>),
}

pub(super) async fn acquire(tables: &Arc<Tables>, request: &Request) -> Result<Acquired, Error> {
    let place = tables.lines.enter(&request.name);
    let turn = place.turn(request).await;
    let (mut unreachable_since, mut in_flight_until) = (None, None);
    let result = loop {
        let attempt = take(tables, request, &mut in_flight_until).await;
        let given_up = request.is_given_up() || turn.is_none();
        match attempt {
            Ok(Attempt::Held(held)) => return Ok(Acquired::Held(held)),
            Ok(Attempt::Busy(holder)) => {
                unreachable_since = None;
                if given_up {
                    let holder = holder.as_deref().map(label_of);
                    break Ok(Acquired::Busy { holder });
                }
            }
            Err(Error::Unreachable(why)) => {
                let since = *unreachable_since.get_or_insert_with(Moment::now);
                if given_up || since.plus(tables.timeout()).has_passed() {
                    break Err(Error::Unreachable(why));
                }
            }
            Err(error) => break Err(error),
        }
        loop {
            let in_time = request.pause(jittered(POLL_EVERY), place.changed()).await;
            // Read before trying again: conditional writes by many waiters would get in the
            // holder's way.
            let seen = tables.look(&request.name).await;
            if !in_time || !matches!(seen, Ok(Some(holder)) if holder != request.owner()) {
                break;
            }
        }
    };
    if let Some(until) = in_flight_until {
        request.finish_later(undo(tables.clone(), request.name.clone(), request.owner(), until));
    }
    result
}

/// One attempt. Sets `in_flight_until` if a take that got no reply may still take effect.
async fn take(
    tables: &Arc<Tables>,
    request: &Request,
    in_flight_until: &mut Option<Moment>,
) -> Result<Attempt, Error> {
    let (name, owner, sent) = (request.name.as_str(), request.owner(), Moment::now());
    let mut sent = Some(sent);
    let cause = match tables.take(name, &owner, request.ttl).await {
        Ok(Ok(())) => None,
        // An earlier attempt succeeded after all, nobody knows when.
        Ok(Err(Some(holder))) if holder == owner => {
            sent = None;
            None
        }
        Ok(Err(holder)) => return Ok(Attempt::Busy(holder)),
        Err(Failure::Definite(error)) => return Err(error),
        Err(Failure::Ambiguous(cause)) => Some(cause),
    };
    let give_up = Moment::now().plus(tables.timeout());
    let (mut last_cause, mut before) = (cause, None);
    if last_cause.is_some() {
        sent = None;
        *in_flight_until = Some(Moment::now().plus(IN_FLIGHT));
    }
    loop {
        let settled = match &last_cause {
            None => confirm(tables, request, sent, *in_flight_until, &mut before).await,
            // A read at SERIAL completes an unfinished write, or makes sure that it never happens.
            Some(_) => match tables.read(name).await {
                Ok(Some((holder, _))) if holder == owner => {
                    confirm(tables, request, sent, *in_flight_until, &mut before).await
                }
                Ok(holder) => return Ok(Attempt::Busy(holder.map(|(holder, _)| holder))),
                Err(error) => Err(error),
            },
        };
        let cause = match settled {
            Ok(Some(held)) => return Ok(Attempt::Held(held)),
            Ok(None) => return Ok(Attempt::Busy(None)),
            Err(error) => error,
        };
        if give_up.has_passed() {
            let until = over_by(request.ttl);
            request.finish_later(undo(tables.clone(), request.name.clone(), owner, until));
            return Err(Error::Unsure { until: until.wall_clock(), cause: cause.to_string() });
        }
        last_cause = Some(cause);
        sleep(RETRY_PAUSE).await;
    }
}

/// Turns our row into a held lock: gets its token, then checks that the row is still ours. `None`
/// if it is not. `sent` is when the row was requested, if it is known which request created it;
/// `late` is until when another request may create it again; `before` is the mark of the previous
/// holder, kept for when this is retried.
async fn confirm(
    tables: &Arc<Tables>,
    request: &Request,
    sent: Option<Moment>,
    late: Option<Moment>,
    before: &mut Option<Mark>,
) -> Result<Option<Held>, Error> {
    let (name, owner) = (request.name.as_str(), request.owner());
    let hold = LwtHold::new(tables.clone(), name.to_owned(), owner.clone()).taken(late);
    let (mut number, mut ending) = (None, None);
    if let Some(tokens) = &tables.tokens {
        let mark = raise(tables, tokens, request, &owner, before).await?;
        let before = before.clone().unwrap_or_default();
        if !matches!(tables.read(name).await?, Some((holder, _)) if holder == owner) {
            // The row is gone, so the token is of no use.
            let _ = tables.restore(tokens, name, &owner, &before).await;
            return Ok(None);
        }
        (number, ending) = (Some(token(mark.token)), ending_of(before));
    }
    let known = sent.map(|sent| validity(sent, request.ttl));
    let validity = match known.filter(|known| !known.valid_until.has_passed()) {
        Some(known) => known,
        None => match hold.extend(request.ttl).await {
            Ok(extended) => extended,
            Err(Error::NotHeld(_)) => return Ok(None),
            Err(error) => return Err(error),
        },
    };
    Ok(Some(held(hold, number, ending, validity)))
}

/// Raises the token and returns our mark.
async fn raise(
    tables: &Tables,
    tokens: &Tokens,
    request: &Request,
    owner: &str,
    before: &mut Option<Mark>,
) -> Result<Mark, Error> {
    /// Each failed attempt means that someone else raised it.
    const ATTEMPTS: u32 = 10;
    let name = request.name.as_str();
    for _ in 0..ATTEMPTS {
        let now = tables.mark(tokens, name).await?;
        match &now {
            // An attempt that got no reply did it.
            Some(mark) if mark.holder.as_deref() == Some(owner) => return Ok(mark.clone()),
            now => *before = Some(now.clone().unwrap_or_default()),
        }
        let last = now.map(|mark| mark.token);
        let mark = Mark {
            token: last.unwrap_or(0) + 1,
            holder: Some(owner.to_owned()),
            note: request.note.clone(),
        };
        match tables.raise(tokens, name, last, &mark).await {
            Ok(true) => return Ok(mark),
            Ok(false) | Err(Failure::Ambiguous(_)) => {}
            Err(Failure::Definite(error)) => return Err(error),
        }
    }
    Err(Error::Unreachable(format!("the token of `{name}` could not be raised")))
}

fn held(hold: LwtHold, token: Option<Token>, ending: Option<Ending>, validity: Validity) -> Held {
    Held { hold: Arc::new(hold), token, ending, validity }
}

/// A holder that did not finish has died. Of one that finished, only the token is left.
fn ending_of(before: Mark) -> Option<Ending> {
    let number = (before.token > 0).then(|| token(before.token))?;
    Some(match before.holder {
        Some(holder) => Ending::of_death(Some(number), Some(label_of(&holder)), before.note),
        None => Ending::of_release(Some(number), None),
    })
}

/// Gives back what a take with an unknown outcome may have taken, or may still take before `until`.
async fn undo(tables: Arc<Tables>, name: String, owner: String, until: Moment) {
    const PAUSE: Duration = Duration::from_secs(3);
    let hold = LwtHold::new(tables, name, owner);
    loop {
        let last = until.has_passed();
        let _ = hold.release().await;
        if last {
            return;
        }
        sleep(until.remaining().min(PAUSE)).await;
    }
}
