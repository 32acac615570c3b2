//! Taking a lock: get in line, then wait until nobody is ahead.

use super::hold::ZooKeeperHold;
use super::inspect::label;
use super::line::{Ahead, Place};
use super::session::{ErrorClass, Session, Sessions, meaning, refused, retry};
use crate::clock::Moment;
use crate::driver::{Acquired, Held, Request};
use crate::error::Error;
use crate::token::Token;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use zookeeper_client::Error as ZkError;

pub(super) async fn acquire(
    sessions: &Arc<Sessions>,
    folder: String,
    request: &Request,
) -> Result<Acquired, Error> {
    loop {
        let session = sessions.for_ttl(request.ttl).await?;
        if request.fixed {
            session.check_unrenewed(request.ttl)?;
        }
        let sent = Moment::now();
        let place = match take_place(&session, folder.clone(), request).await? {
            Ok(place) => place,
            // The place in line is gone with its session: get a new one in a new session.
            Err(error) if meaning(&error) == ErrorClass::SessionOver && !request.is_given_up() => {
                continue;
            }
            Err(error) => return Err(final_error(&error)),
        };
        let error = match wait(&place, request, sent).await {
            Ok(WaitResult::Held { sent }) => {
                let validity = session.validity(sent, request.ttl);
                return Ok(Acquired::Held(Held {
                    token: Some(Token::new(u64::try_from(place.czxid).unwrap_or(0))),
                    ending: None,
                    validity,
                    hold: Arc::new(ZooKeeperHold::new(sessions.clone(), place, request.ttl)),
                }));
            }
            Ok(WaitResult::Busy { holder }) => {
                leave(place, request).await?;
                return Ok(Acquired::Busy { holder });
            }
            Ok(WaitResult::Lost) => {
                leave(place, request).await?;
                if request.is_given_up() {
                    return Ok(Acquired::Busy { holder: None });
                }
                continue;
            }
            Err(error) => error,
        };
        leave(place, request).await?;
        return Err(error);
    }
}

/// How waiting in line ended.
enum WaitResult {
    Held {
        /// When the request that confirmed this was sent.
        sent: Moment,
    },
    Busy {
        holder: Option<String>,
    },
    /// The node or its session is gone.
    Lost,
}

async fn wait(place: &Place, request: &Request, entered: Moment) -> Result<WaitResult, Error> {
    let (session, client) = (&place.session, &place.session.client);
    // The create went through the leader. Later, only a sync proves that the session is alive.
    let is_fresh = !place.repeated && !entered.plus(session.lease(request.ttl) / 3).has_passed();
    let (mut sent, mut sync) = if is_fresh { (entered, false) } else { (Moment::now(), true) };
    loop {
        let (predecessor, holder) = match session.limited(place.front(sync)).await? {
            Ok(Ahead::Nobody) => return Ok(WaitResult::Held { sent }),
            Ok(Ahead::Somebody { predecessor, holder }) => (predecessor, holder),
            Ok(Ahead::Gone) => return Ok(WaitResult::Lost),
            Err(error) if meaning(&error) == ErrorClass::SessionOver => {
                return Ok(WaitResult::Lost);
            }
            Err(error) => return Err(final_error(&error)),
        };
        if request.is_given_up() {
            let path = format!("{}/{holder}", place.folder);
            let data = session.limited(retry(|| client.get_data(&path))).await?;
            return Ok(WaitResult::Busy { holder: data.ok().and_then(|(data, _)| label(&data)) });
        }
        let path = format!("{}/{predecessor}", place.folder);
        let watched = session.limited(retry(|| client.get_and_watch_data(&path))).await?;
        match watched {
            Ok((_, _, gone)) => {
                tokio::select! {
                    biased;
                    () = request.given_up() => {}
                    _ = gone.changed() => {}
                }
            }
            Err(ZkError::NoNode) => {}
            Err(error) if meaning(&error) == ErrorClass::SessionOver => {
                return Ok(WaitResult::Lost);
            }
            Err(error) => return Err(final_error(&error)),
        }
        (sent, sync) = (Moment::now(), true);
    }
}

/// Gets in line. If that takes too long, the place is given up again in the background.
async fn take_place(
    session: &Arc<Session>,
    folder: String,
    request: &Request,
) -> Result<Result<Place, ZkError>, Error> {
    let (nonce, text) = (request.nonce.clone(), request.label.clone());
    let mut taking = tokio::spawn(Place::take(session.clone(), folder, nonce, text));
    if let Ok(taken) = timeout(session.limit, &mut taking).await {
        return taken.map_err(|error| Error::Unreachable(format!("internal error: {error}")));
    }
    request.finish_later(async move {
        if let Ok(Ok(place)) = taking.await {
            place.leave().await;
        }
    });
    Err(unsure(session, request.ttl))
}

/// Leaves the line. Continues in the background if ZooKeeper does not answer.
async fn leave(place: Place, request: &Request) -> Result<(), Error> {
    let session = place.session.clone();
    let leaving = request.finish_later(async move { place.leave().await });
    let left = timeout(session.limit, leaving).await;
    left.map(drop).map_err(|_| unsure(&session, request.ttl))
}

fn unsure(session: &Session, ttl: Duration) -> Error {
    let until = session.over_by(ttl).wall_clock();
    Error::Unsure { until, cause: "ZooKeeper does not answer".to_owned() }
}

fn final_error(error: &ZkError) -> Error {
    match meaning(error) {
        ErrorClass::Definite => refused(error),
        _ => Error::Unreachable(format!("ZooKeeper: {error}")),
    }
}
