//! Acquires whose answer is their turn: the connection waits, and when it goes, so does the wait.

use crate::api::Api;
use crate::connection::Connection;
use crate::engine::{Answered, Trouble, Turn};
use crate::failure::Failure;
use crate::uptime::Uptime;
use holdfast_core::{
    Acquire, Answer, Command, Grant, Lease, Proof, Request, Standing, Target, Token, Wait,
};
use holdfast_node::Node;
use std::time::Duration;

/// What draws a ticket.
pub(crate) enum Taking {
    /// A new one.
    Acquire(Acquire),
    /// A writer's, for a reader.
    Upgrade { target: Target, proof: Proof, wait: Wait, claims: Vec<Token> },
}

impl Taking {
    fn command(self) -> Command {
        match self {
            Self::Acquire(acquire) => Command::Acquire(acquire),
            Self::Upgrade { target, proof, wait, claims } => {
                Command::Upgrade { target, proof, wait, claims }
            }
        }
    }
}

/// Takes a lock, and returns when it is held, or when its wait or its earlier ticket is over.
///
/// If this is dropped before it returns, or the client closes its connection, a ticket that only the
/// caller can know of is given up.
pub(crate) async fn take(
    api: &Api,
    connection: &Connection,
    request: Option<Request>,
    taking: Taking,
) -> Result<Standing, Failure> {
    tokio::select! {
        biased;
        () = connection.closed() => Err(Failure::conflict(
            "connection_closed",
            "the client closed its connection, or sent too much behind its request",
            "keep the connection open, and send nothing on it until the answer is there",
        )),
        taken = take_turn(api, request, taking) => taken,
    }
}

async fn take_turn(
    api: &Api,
    request: Option<Request>,
    taking: Taking,
) -> Result<Standing, Failure> {
    let since = Uptime::now();
    let may_be_older = request.is_some();
    let (answered, undelivered) = api.ask_undelivered(request, taking.command()).await?;
    let settled = match settle(answered).await? {
        Ok((Standing::Held(grant), Came::AtOnce)) if may_be_older => {
            match api.peek(lasts_of(grant.token)).await? {
                (Standing::Held(_), lasts) => Ok(confirm(api, grant, since, lasts).await?),
                (over, _) => Ok(over),
            }
        }
        Ok((Standing::Held(grant), _)) => {
            let lasts = match grant.lease {
                Lease::Deadline { ttl_ms } | Lease::Unconfirmed { ttl_ms } => {
                    Duration::from_millis(ttl_ms)
                }
                // Nobody here knows how long its session may be silent.
                Lease::Session => Duration::ZERO,
                Lease::Permanent => Duration::MAX,
            };
            Ok(confirm(api, grant, since, lasts).await?)
        }
        Ok((standing, _)) => Ok(standing),
        Err(failure) => Err(failure),
    };
    if let Some(undelivered) = undelivered {
        undelivered.delivered();
    }
    settled
}

/// A grant whose answer took no longer than this is as good as any answer over a network.
const FRESH: Duration = Duration::from_millis(100);

/// A grant may also be ended by somebody else: after so long it is looked at again in any case.
const CONFIRM_AFTER: Duration = Duration::from_secs(5);

/// How often a grant is looked at before the answer is "unknown". Each look is confirmed by a
/// majority: it fails only if this node stands still again and again.
const LOOKS_MAX: usize = 5;

/// Makes sure that a grant is not over. This node may have learned of it late: it was stopped, or
/// cut off from the leader, for longer than the lease lasts.
///
/// The grant was certainly made after `since`, and lasted for `lasts` from then on at least. If that
/// may be over by now, the current state decides.
async fn confirm(
    api: &Api,
    grant: Grant,
    mut since: Uptime,
    mut lasts: Duration,
) -> Result<Standing, Failure> {
    for _ in 0..LOOKS_MAX {
        // A lease never ends early, but the clocks of two machines differ by a little.
        let certain = (lasts - lasts / 10).min(CONFIRM_AFTER).max(FRESH);
        if since.elapsed() < certain {
            return Ok(Standing::Held(grant));
        }
        since = Uptime::now();
        let (standing, lasts_now) =
            api.read(lasts_of(grant.token)).await.map_err(|_| Trouble::Unknown)?;
        if !matches!(standing, Standing::Held(_)) {
            return Ok(standing);
        }
        lasts = lasts_now;
    }
    Err(Trouble::Unknown.into())
}

/// How a ticket stands, and for how long it will be held at least if it is.
fn lasts_of(token: Token) -> impl FnOnce(&Node) -> (Standing, Duration) {
    move |node| {
        let state = node.state();
        let due_ms = state.ticket_view(token).map(|ticket| ticket.due_ms);
        let lasts = match due_ms {
            Some(Some(due_ms)) => Duration::from_millis(due_ms.saturating_sub(state.now_ms())),
            // It was held when this was asked, and what ends it is no deadline.
            Some(None) => CONFIRM_AFTER,
            None => Duration::ZERO,
        };
        (state.standing(token), lasts)
    }
}

/// When a ticket was served.
enum Came {
    AtOnce,
    InTurn,
}

/// Waits until the answer is final: what it is, or an error if this node can't tell.
async fn settle(
    Answered { answer, turn }: Answered,
) -> Result<Result<(Standing, Came), Failure>, Trouble> {
    let standing = match answer {
        Ok(Answer::Standing(standing)) => standing,
        Ok(_) => {
            return Ok(Err(Failure::conflict(
                "other_request",
                "this request_id was used for something else",
                "use a new request_id for each request",
            )));
        }
        Err(refusal) => return Ok(Err(refusal.into())),
    };
    let (Standing::Waiting { .. }, Some(turn)) = (&standing, turn) else {
        return Ok(Ok((standing, Came::AtOnce)));
    };
    match turn.await {
        Ok(Turn::Granted(grant)) => Ok(Ok((Standing::Held(*grant), Came::InTurn))),
        Ok(Turn::Ended(ended)) => {
            let (token, how) = (ended.token, ended.how);
            let (message, hint) = if ended.held {
                let message =
                    format!("ticket {token} was served, but ended before it was confirmed: {how}");
                (message, "acquire again; a longer ttl_ms survives a longer pause of this server")
            } else {
                (format!("ticket {token} was not served: {how}"), "wait longer, or try later")
            };
            let failure = Failure::conflict("not_acquired", message, hint);
            Ok(Err(Failure { how: Some(ended.how), ..failure }))
        }
        // This node jumped over entries, or stops.
        Err(_) => Err(Trouble::Unknown),
    }
}
