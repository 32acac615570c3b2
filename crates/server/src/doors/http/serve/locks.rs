//! Acquiring, keeping and releasing locks.

use super::acquire;
use super::body::JsonBody;
use crate::doors::Context;
use crate::doors::http::codec::text;
use crate::doors::http::serve::connection::Connection;
use crate::doors::http::translate::error_response::HttpError;
use crate::doors::http::translate::fields::{self, ModeField, SessionField, WholeNumber};
use crate::doors::http::translate::show;
use crate::random;
use axum::Json;
use holdfast_core::{
    Acquire, Answer, Command, EndReason, Grant, RequestRef, Secret, TicketStatus, Token,
};
use holdfast_gateway::request::{self, AcquireRequest, ModeKind};
use holdfast_gateway::{ApiError, Code, SubmitError};
use serde::Deserialize;
use serde_json::{Value, json};

/// The body of an acquire.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcquireBody {
    pub(crate) name: Option<String>,
    /// Several names, taken in one step.
    pub(crate) names: Option<Vec<String>>,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) wait_ms: Option<u64>,
    pub(crate) mode: Option<ModeField>,
    /// For mode `permit`: how many permits the lock has.
    pub(crate) permits: Option<u32>,
    pub(crate) label: Option<String>,
    pub(crate) note: Option<String>,
    pub(crate) request_id: Option<String>,
    pub(crate) session: Option<SessionField>,
    pub(crate) lock_delay_ms: Option<u64>,
    /// Tokens that the caller keeps while it waits.
    pub(crate) holding: Option<Vec<WholeNumber>>,
}

impl AcquireBody {
    fn parse(self) -> Result<(Option<RequestRef>, Acquire), ApiError> {
        let names = match (self.name, self.names) {
            (Some(name), None) => vec![name],
            (None, Some(names)) => names,
            _ => return Err(ApiError::bad("give name or names", "one of the two, not both")),
        };
        let request = AcquireRequest {
            names: names.iter().map(|name| text::read(name)).collect(),
            mode: self.mode.map(ModeKind::from),
            permits: self.permits,
            ttl_ms: self.ttl_ms,
            wait_ms: self.wait_ms,
            label: fields::optional(self.label.as_deref()),
            note: fields::optional(self.note.as_deref()),
            request_id: self.request_id.map(String::into_bytes),
            session: self.session.map(|session| session.parse()).transpose()?,
            lock_delay_ms: self.lock_delay_ms.unwrap_or_default(),
            claims: claims(self.holding),
        };
        request.parse(Secret(random::bytes()))
    }

    /// Acquires; returns when the lock is held.
    pub(crate) async fn acquire(
        self,
        context: &Context,
        connection: &Connection,
    ) -> Result<Grant, ApiError> {
        let (request, command) = self.parse()?;
        let command = Command::Acquire(command);
        held(acquire::take(context, connection, request, command).await?)
    }
}

fn claims(holding: Option<Vec<WholeNumber>>) -> Vec<u64> {
    holding.unwrap_or_default().into_iter().map(|token| token.0).collect()
}

fn alone(request_id: Option<&str>) -> Result<Option<RequestRef>, ApiError> {
    let key = request_id.map(|id| request::request_key(id.as_bytes())).transpose()?;
    Ok(key.map(RequestRef::Alone))
}

fn held(status: TicketStatus) -> Result<Grant, ApiError> {
    match status {
        TicketStatus::Held(grant) => Ok(grant),
        TicketStatus::Over { token, how } => Err(over(token, how)),
        TicketStatus::Waiting { .. } => Err(SubmitError::Unknown.into()),
    }
}

fn over(token: Token, how: EndReason) -> ApiError {
    let message = format!("the ticket {token} of this request is over: {how}");
    let hint = "use a new request_id to acquire again";
    match how {
        EndReason::TimedOut | EndReason::Cancelled => {
            ApiError::new(Code::NotAcquired, message, hint)
        }
        _ => ApiError::new(Code::Ended, message, hint),
    }
}

pub(crate) async fn grab(
    context: Context,
    connection: Connection,
    JsonBody(grab): JsonBody<AcquireBody>,
) -> Result<Json<Value>, HttpError> {
    Ok(Json(show::grant(&grab.acquire(&context, &connection).await?)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpgradeField {
    name: String,
    fencing_token: WholeNumber,
    secret: String,
    wait_ms: Option<u64>,
    request_id: Option<String>,
    holding: Option<Vec<WholeNumber>>,
}

/// Turns a shared ticket into an exclusive one, with a new token, once the other readers are gone.
pub(crate) async fn upgrade(
    context: Context,
    connection: Connection,
    JsonBody(sent): JsonBody<UpgradeField>,
) -> Result<Json<Value>, HttpError> {
    let ticket = fields::ticket(&sent.name, sent.fencing_token, &sent.secret)?;
    let request = alone(sent.request_id.as_deref())?;
    let upgrade = ticket.upgrade(sent.wait_ms, claims(sent.holding), None)?;
    let grant = held(acquire::take(&context, &connection, request, upgrade).await?)?;
    Ok(Json(show::grant(&grant)))
}

/// Identifies a held or waiting ticket, with its secret.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TicketBody {
    name: String,
    fencing_token: WholeNumber,
    secret: String,
}

/// Turns an exclusive ticket into a shared one; it keeps its token.
pub(crate) async fn downgrade(
    context: Context,
    JsonBody(own): JsonBody<TicketBody>,
) -> Result<Json<Value>, HttpError> {
    let ticket = fields::ticket(&own.name, own.fencing_token, &own.secret)?;
    context.engine.submit(None, ticket.downgrade()?).await??;
    Ok(Json(json!({ "downgraded": own.fencing_token.0 })))
}

pub(crate) async fn release(
    context: Context,
    JsonBody(own): JsonBody<TicketBody>,
) -> Result<Json<Value>, HttpError> {
    let ticket = fields::ticket(&own.name, own.fencing_token, &own.secret)?;
    context.engine.submit(None, ticket.release()?).await??;
    Ok(Json(json!({ "released": own.fencing_token.0 })))
}

pub(crate) async fn cancel(
    context: Context,
    JsonBody(own): JsonBody<TicketBody>,
) -> Result<Json<Value>, HttpError> {
    let ticket = fields::ticket(&own.name, own.fencing_token, &own.secret)?;
    context.engine.submit(None, ticket.cancel()?).await??;
    Ok(Json(json!({ "cancelled": own.fencing_token.0 })))
}

pub(crate) async fn recovered(
    context: Context,
    JsonBody(own): JsonBody<TicketBody>,
) -> Result<Json<Value>, HttpError> {
    let ticket = fields::ticket(&own.name, own.fencing_token, &own.secret)?;
    match context.engine.submit(None, ticket.recovered()?).await?? {
        Answer::Recovered(death) => Ok(Json(json!({ "from": death.as_deref().map(show::ending) }))),
        _ => Err(ApiError::unexpected().into()),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Renew {
    name: String,
    fencing_token: WholeNumber,
    secret: String,
    ttl_ms: u64,
}

pub(crate) async fn renew(
    context: Context,
    JsonBody(sent): JsonBody<Renew>,
) -> Result<Json<Value>, HttpError> {
    let ticket = fields::ticket(&sent.name, sent.fencing_token, &sent.secret)?;
    context.engine.submit(None, ticket.renew(sent.ttl_ms)?).await??;
    Ok(Json(json!({ "renewed": sent.fencing_token.0, "ttl_ms": sent.ttl_ms })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteField {
    name: String,
    fencing_token: WholeNumber,
    secret: String,
    /// `None` removes the note.
    note: Option<String>,
}

pub(crate) async fn note(
    context: Context,
    JsonBody(sent): JsonBody<NoteField>,
) -> Result<Json<Value>, HttpError> {
    let ticket = fields::ticket(&sent.name, sent.fencing_token, &sent.secret)?;
    let note = fields::optional(sent.note.as_deref());
    context.engine.submit(None, ticket.note(note)?).await??;
    Ok(Json(json!({ "noted": sent.fencing_token.0 })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutcomeField {
    request_id: String,
}

/// The outcome of a request. One that has not been seen by now will never take effect.
pub(crate) async fn outcome(
    context: Context,
    JsonBody(sent): JsonBody<OutcomeField>,
) -> Result<Json<Value>, HttpError> {
    let key = RequestRef::Alone(request::request_key(sent.request_id.as_bytes())?);
    let answer = context.engine.submit(None, Command::Outcome(key)).await?;
    Ok(Json(match answer {
        Ok(Answer::TicketStatus(TicketStatus::Held(grant))) => {
            json!({ "outcome": "held", "grant": show::grant(&grant) })
        }
        Ok(Answer::TicketStatus(TicketStatus::Waiting { token, secret, place, .. })) => json!({
            "outcome": "waiting",
            "fencing_token": token.0,
            "secret": secret.as_ref().map(show::secret),
            "place": place,
        }),
        Ok(Answer::TicketStatus(TicketStatus::Over { token, how })) => json!({
            "outcome": "ended", "fencing_token": token.0, "how": how.to_string(),
        }),
        Ok(Answer::Barred) => json!({ "outcome": "never" }),
        Ok(_) => return Err(ApiError::unexpected().into()),
        Err(refusal) => {
            let error = ApiError::from(refusal);
            json!({ "outcome": "refused", "code": error.code.as_str(), "message": error.message })
        }
    }))
}
