//! Taking locks, keeping them and letting go.

use super::body::Sent;
use super::fields::{self, ModeField, SessionField, Whole};
use super::show;
use crate::api::Api;
use crate::connection::Connection;
use crate::engine::Trouble;
use crate::failure::Failure;
use crate::random;
use crate::times;
use crate::waits::{self, Taking};
use axum::Json;
use axum::extract::State;
use holdfast_core::{
    Acquire, Answer, Command, Door, Grant, How, Lease, Request, Secret, Standing, Token,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// What a lock is asked for with.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grab {
    pub(super) name: Option<String>,
    /// Several, taken in one step.
    pub(super) names: Option<Vec<String>>,
    pub(super) ttl_ms: Option<u64>,
    pub(super) wait_ms: Option<u64>,
    pub(super) mode: Option<ModeField>,
    /// For mode permit: how many there are.
    pub(super) permits: Option<u32>,
    pub(super) label: Option<String>,
    pub(super) note: Option<String>,
    pub(super) request_id: Option<String>,
    pub(super) session: Option<SessionField>,
    pub(super) lock_delay_ms: Option<u64>,
    /// Tokens that the asker keeps while it waits.
    pub(super) holding: Option<Vec<Whole>>,
}

impl Grab {
    fn parse(self) -> Result<(Option<Request>, Acquire), Failure> {
        let names = match (self.name, self.names) {
            (Some(name), None) => vec![fields::name(&name)?],
            (None, Some(names)) => {
                names.iter().map(|name| fields::name(name)).collect::<Result<_, _>>()?
            }
            _ => return Err(Failure::bad("give name or names", "one of the two, not both")),
        };
        let session = self.session.map(|session| session.parse()).transpose()?;
        let lease = match (self.ttl_ms, session) {
            (Some(ttl_ms), _) => Lease::Deadline { ttl_ms: times::ttl_ms(ttl_ms)? },
            (None, Some(_)) => Lease::Session,
            (None, None) => {
                return Err(Failure::bad(
                    "ttl_ms is missing: without a session only a deadline ends a lock whose \
                     holder died",
                    "give ttl_ms, for instance 15000",
                ));
            }
        };
        if self.request_id.is_some() && session.is_some() {
            return Err(Failure::bad(
                "a request_id of its own and a session don't fit together",
                "leave out one of the two",
            ));
        }
        let acquire = Acquire {
            names,
            mode: ModeField::wanted(self.mode, self.permits)?,
            session,
            lease,
            wait: times::wait(self.wait_ms)?,
            label: fields::label(self.label.as_deref())?,
            note: fields::note(self.note.as_deref())?,
            secret: Some(Secret(random::bytes())),
            claims: claims(self.holding)?,
            lock_delay_ms: self.lock_delay_ms.unwrap_or_default(),
            door: Door::Native,
        };
        Ok((alone(self.request_id.as_deref())?, acquire))
    }

    /// Returns when the lock is held.
    pub(super) async fn acquire(
        self,
        api: &Api,
        connection: &Connection,
    ) -> Result<Grant, Failure> {
        let (request, acquire) = self.parse()?;
        held(waits::take(api, connection, request, Taking::Acquire(acquire)).await?)
    }
}

fn claims(holding: Option<Vec<Whole>>) -> Result<Vec<Token>, Failure> {
    holding.unwrap_or_default().into_iter().map(fields::token).collect()
}

fn alone(request_id: Option<&str>) -> Result<Option<Request>, Failure> {
    Ok(request_id.map(fields::request_key).transpose()?.map(Request::Alone))
}

fn held(standing: Standing) -> Result<Grant, Failure> {
    match standing {
        Standing::Held(grant) => Ok(grant),
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

pub(crate) async fn grab(
    State(api): State<Api>,
    connection: Connection,
    Sent(grab): Sent<Grab>,
) -> Result<Json<Value>, Failure> {
    Ok(Json(show::grant(&grab.acquire(&api, &connection).await?)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpgradeField {
    name: String,
    fencing_token: Whole,
    secret: String,
    wait_ms: Option<u64>,
    request_id: Option<String>,
    holding: Option<Vec<Whole>>,
}

/// A reader becomes the writer, with a new token, once the other readers are gone.
pub(crate) async fn upgrade(
    State(api): State<Api>,
    connection: Connection,
    Sent(sent): Sent<UpgradeField>,
) -> Result<Json<Value>, Failure> {
    let (target, proof) = fields::own(&sent.name, sent.fencing_token, &sent.secret)?;
    let request = alone(sent.request_id.as_deref())?;
    let wait = times::wait(sent.wait_ms)?;
    let taking = Taking::Upgrade { target, proof, wait, claims: claims(sent.holding)? };
    let grant = held(waits::take(&api, &connection, request, taking).await?)?;
    Ok(Json(show::grant(&grant)))
}

/// Which held or waiting ticket is meant, and the proof.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Own {
    name: String,
    fencing_token: Whole,
    secret: String,
}

/// A writer becomes a reader and keeps its token.
pub(crate) async fn downgrade(
    State(api): State<Api>,
    Sent(own): Sent<Own>,
) -> Result<Json<Value>, Failure> {
    let (target, proof) = fields::own(&own.name, own.fencing_token, &own.secret)?;
    api.ask(None, Command::Downgrade { target, proof }).await?.answer?;
    Ok(Json(json!({ "downgraded": own.fencing_token.0 })))
}

pub(crate) async fn release(
    State(api): State<Api>,
    Sent(own): Sent<Own>,
) -> Result<Json<Value>, Failure> {
    let (target, proof) = fields::own(&own.name, own.fencing_token, &own.secret)?;
    api.ask(None, Command::Release { target, proof }).await?.answer?;
    Ok(Json(json!({ "released": own.fencing_token.0 })))
}

pub(crate) async fn cancel(
    State(api): State<Api>,
    Sent(own): Sent<Own>,
) -> Result<Json<Value>, Failure> {
    let (target, proof) = fields::own(&own.name, own.fencing_token, &own.secret)?;
    api.ask(None, Command::Cancel { target, proof }).await?.answer?;
    Ok(Json(json!({ "cancelled": own.fencing_token.0 })))
}

pub(crate) async fn recovered(
    State(api): State<Api>,
    Sent(own): Sent<Own>,
) -> Result<Json<Value>, Failure> {
    let (target, proof) = fields::own(&own.name, own.fencing_token, &own.secret)?;
    match api.ask(None, Command::Recovered { target, proof }).await?.answer? {
        Answer::Recovered(death) => Ok(Json(json!({ "from": death.as_deref().map(show::ending) }))),
        _ => Ok(Json(json!({ "from": null }))),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Renew {
    name: String,
    fencing_token: Whole,
    secret: String,
    ttl_ms: u64,
}

pub(crate) async fn renew(
    State(api): State<Api>,
    Sent(sent): Sent<Renew>,
) -> Result<Json<Value>, Failure> {
    let (target, proof) = fields::own(&sent.name, sent.fencing_token, &sent.secret)?;
    let command = Command::Renew { target, proof, ttl_ms: times::ttl_ms(sent.ttl_ms)? };
    api.ask(None, command).await?.answer?;
    Ok(Json(json!({ "renewed": sent.fencing_token.0, "ttl_ms": sent.ttl_ms })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteField {
    name: String,
    fencing_token: Whole,
    secret: String,
    /// None takes the note away.
    note: Option<String>,
}

pub(crate) async fn note(
    State(api): State<Api>,
    Sent(sent): Sent<NoteField>,
) -> Result<Json<Value>, Failure> {
    let (target, proof) = fields::own(&sent.name, sent.fencing_token, &sent.secret)?;
    let note = fields::note(sent.note.as_deref())?;
    api.ask(None, Command::Note { target, proof, note }).await?.answer?;
    Ok(Json(json!({ "noted": sent.fencing_token.0 })))
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
    let key = Request::Alone(fields::request_key(&sent.request_id)?);
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
        Ok(_) => return Err(Failure::unexpected()),
        Err(refusal) => {
            let failure = Failure::from(refusal);
            json!({ "outcome": "refused", "code": failure.code, "message": failure.message })
        }
    }))
}
