//! Sessions: a client's liveness, apart from any connection.

use super::body::Sent;
use super::error_response::HttpError;
use super::fields::{self, SessionField};
use super::show;
use crate::api::{Api, within};
use crate::random;
use axum::Json;
use axum::extract::State;
use holdfast_core::{Answer, Command, Secret};
use holdfast_gateway::ApiError;
use holdfast_gateway::request;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Open {
    ttl_ms: u64,
    label: Option<String>,
}

pub(crate) async fn open(
    State(api): State<Api>,
    Sent(open): Sent<Open>,
) -> Result<Json<Value>, HttpError> {
    let secret = Secret(random::bytes());
    let label = fields::optional(open.label.as_deref());
    let command = request::open_session(secret, open.ttl_ms, label)?;
    match api.ask(None, command).await?.answer? {
        Answer::SessionOpened(id) => Ok(Json(json!({
            "session": { "id": id.0, "secret": show::secret(&secret) },
            "ttl_ms": open.ttl_ms,
        }))),
        _ => Err(ApiError::unexpected().into()),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    session: SessionField,
}

pub(crate) async fn heartbeat(
    State(api): State<Api>,
    Sent(which): Sent<Which>,
) -> Result<Json<Value>, HttpError> {
    let session = which.session.parse()?;
    if within(api.handle.beat(session)).await? {
        Ok(Json(json!({ "alive": true })))
    } else {
        Err(api.not_alive(session).await?.into())
    }
}

pub(crate) async fn close(
    State(api): State<Api>,
    Sent(which): Sent<Which>,
) -> Result<Json<Value>, HttpError> {
    let session = which.session.parse()?;
    api.ask(None, Command::CloseSession(session)).await?.answer?;
    Ok(Json(json!({ "closed": session.id.0 })))
}
