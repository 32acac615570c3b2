//! Taking locks, keeping them and letting go.

use super::body::{self, ModeField, Sent, SessionField};
use super::show;
use crate::api::Api;
use crate::engine::Trouble;
use crate::failure::Failure;
use crate::random;
use crate::waits;
use axum::Json;
use axum::extract::State;
use holdfast_core::{
    Acquire, Answer, Command, Door, How, Lease, Mode, Proof, Request, Secret, Standing, Target,
    Token, Wait,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// What a lock is asked for with.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grab {
    name: Option<String>,
    /// Several, taken in one step.
    names: Option<Vec<String>>,
    ttl_ms: Option<u64>,
    wait_ms: Option<u64>,
    mode: Option<ModeField>,
    /// For mode permit: how many there are.
    permits: Option<u32>,
    label: Option<String>,
    note: Option<String>,
    request_id: Option<String>,
    session: Option<SessionField>,
    #[serde(default)]
    lock_delay_ms: u64,
    /// Tokens that the asker keeps while it waits.
    #[serde(default)]
    holding: Vec<u64>,
}

impl Grab {
    fn parse(self) -> Result<(Option<Request>, Acquire), Failure> {
        let names = match (self.name, self.names) {
            (Some(name), None) => vec![body::name(&name)?],
            (None, Some(names)) => {
                names.iter().map(|name| body::name(name)).collect::<Result<_, _>>()?
            }
            _ => return Err(Failure::bad("give name or names", "one of the two, not both")),
        };
        let mode = match (self.mode, self.permits) {
            (None | Some(ModeField::Exclusive), None) => Mode::Exclusive,
            (Some(ModeField::Shared), None) => Mode::Shared,
            (None | Some(ModeField::Permit), Some(of)) => Mode::Permit { of },
            _ => {
                return Err(Failure::bad(
                    "mode and permits don't fit together",
                    "a permit needs permits, the other modes have none",
                ));
            }
        };
        let session = self.session.map(|session| session.parse()).transpose()?;
        let lease = match (self.ttl_ms, session) {
            (Some(ttl_ms), _) => Lease::Deadline { ttl_ms },
            (None, Some(_)) => Lease::Session,
            (None, None) => {
                return Err(Failure::bad(
                    "ttl_ms is missing: without a session only a deadline ends a lock whose \
                     holder died",
                    "give ttl_ms, for instance 15000",
                ));
            }
        };
        let key = self.request_id.map(|id| body::request_key(&id)).transpose()?;
        if key.is_some() && session.is_some() {
            return Err(Failure::bad(
                "a request_id of its own and a session don't fit together",
                "leave out one of the two",
            ));
        }
        let acquire = Acquire {
            names,
            mode,
            session,
            lease,
            wait: self.wait_ms.filter(|ms| *ms > 0).map_or(Wait::Try, |ms| Wait::For { ms }),
            label: body::label(self.label)?,
            note: body::note(self.note)?,
            secret: Some(Secret(random::bytes())),
            claims: self.holding.into_iter().map(Token).collect(),
            lock_delay_ms: self.lock_delay_ms,
            door: Door::Native,
        };
        Ok((key.map(Request::Alone), acquire))
    }
}

pub(crate) async fn grab(
    State(api): State<Api>,
    Sent(grab): Sent<Grab>,
) -> Result<Json<Value>, Failure> {
    let (request, acquire) = grab.parse()?;
    match waits::acquire(&api, request, acquire).await? {
        Standing::Held(grant) => Ok(Json(show::grant(&grant))),
        Standing::Over { token, how } => Err(over(token, how)),
        Standing::Waiting { .. } => Err(Trouble::Unknown.into()),
    }
}

fn over(token: Token, how: How) -> Failure {
    let message = format!("the ticket {token} of this request is over: {how}");
    let hint = "use a new request_id to acquire anew";
    match how {
        How::TimedOut | How::Cancelled => Failure::conflict("not_acquired", message, hint),
        _ => Failure::conflict("ended", message, hint),
    }
}

/// Which held or waiting ticket is meant, and the proof.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Own {
    name: String,
    fencing_token: u64,
    secret: String,
}

impl Own {
    fn parse(&self) -> Result<(Target, Proof), Failure> {
        let token = Some(body::token(self.fencing_token)?);
        let target = Target { name: body::name(&self.name)?, token };
        Ok((target, Proof::Secret(body::secret(&self.secret)?)))
    }
}

pub(crate) async fn release(
    State(api): State<Api>,
    Sent(own): Sent<Own>,
) -> Result<Json<Value>, Failure> {
    let (target, proof) = own.parse()?;
    api.ask(None, Command::Release { target, proof }).await?.answer?;
    Ok(Json(json!({ "released": own.fencing_token })))
}

pub(crate) async fn cancel(
    State(api): State<Api>,
    Sent(own): Sent<Own>,
) -> Result<Json<Value>, Failure> {
    let (target, proof) = own.parse()?;
    api.ask(None, Command::Cancel { target, proof }).await?.answer?;
    Ok(Json(json!({ "cancelled": own.fencing_token })))
}

pub(crate) async fn recovered(
    State(api): State<Api>,
    Sent(own): Sent<Own>,
) -> Result<Json<Value>, Failure> {
    let (target, proof) = own.parse()?;
    match api.ask(None, Command::Recovered { target, proof }).await?.answer? {
        Answer::Recovered(death) => Ok(Json(json!({ "from": death.as_deref().map(show::ending) }))),
        _ => Ok(Json(json!({ "from": null }))),
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Renew {
    #[serde(flatten)]
    own: Own,
    ttl_ms: u64,
}

pub(crate) async fn renew(
    State(api): State<Api>,
    Sent(renew): Sent<Renew>,
) -> Result<Json<Value>, Failure> {
    let (target, proof) = renew.own.parse()?;
    let command = Command::Renew { target, proof, ttl_ms: renew.ttl_ms };
    api.ask(None, command).await?.answer?;
    Ok(Json(json!({ "renewed": renew.own.fencing_token, "ttl_ms": renew.ttl_ms })))
}

#[derive(Debug, Deserialize)]
pub(crate) struct NoteField {
    #[serde(flatten)]
    own: Own,
    note: Option<String>,
}

pub(crate) async fn note(
    State(api): State<Api>,
    Sent(sent): Sent<NoteField>,
) -> Result<Json<Value>, Failure> {
    let (target, proof) = sent.own.parse()?;
    let note = body::note(sent.note)?;
    api.ask(None, Command::Note { target, proof, note }).await?.answer?;
    Ok(Json(json!({ "noted": sent.own.fencing_token })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutcomeField {
    request_id: String,
}

/// What became of a request. One that was not seen by now never takes effect.
pub(crate) async fn outcome(
    State(api): State<Api>,
    Sent(sent): Sent<OutcomeField>,
) -> Result<Json<Value>, Failure> {
    let key = Request::Alone(body::request_key(&sent.request_id)?);
    let answer = api.ask(None, Command::Outcome(key)).await?.answer;
    Ok(Json(match answer {
        Ok(Answer::Standing(Standing::Held(grant))) => {
            json!({ "outcome": "held", "grant": show::grant(&grant) })
        }
        Ok(Answer::Standing(Standing::Waiting { token, secret, place, .. })) => json!({
            "outcome": "waiting",
            "fencing_token": token.0,
            "secret": secret.as_ref().map(show::secret),
            "place": place,
        }),
        Ok(Answer::Standing(Standing::Over { token, how })) => json!({
            "outcome": "ended", "fencing_token": token.0, "how": how.to_string(),
        }),
        Ok(Answer::Barred) => json!({ "outcome": "never" }),
        Ok(other) => json!({ "outcome": format!("{other:?}") }),
        Err(refusal) => json!({ "outcome": "refused", "message": refusal.to_string() }),
    }))
}
