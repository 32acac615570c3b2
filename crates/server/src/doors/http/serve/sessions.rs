//! Sessions: a client's liveness, independent of any connection.

use super::body::JsonBody;
use crate::doors::Context;
use crate::doors::http::translate::error_response::HttpError;
use crate::doors::http::translate::fields::{self, SessionField};
use crate::doors::http::translate::show;
use crate::random;
use axum::Json;
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
    context: Context,
    JsonBody(open): JsonBody<Open>,
) -> Result<Json<Value>, HttpError> {
    let secret = Secret(random::bytes());
    let label = fields::optional(open.label.as_deref());
    let command = request::open_session(secret, open.ttl_ms, label)?;
    match context.engine.submit(None, command).await?? {
        Answer::SessionOpened(id) => Ok(Json(json!({
            "session": { "id": id.0, "secret": show::secret(&secret) },
            "ttl_ms": open.ttl_ms,
        }))),
        _ => Err(ApiError::unexpected().into()),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionBody {
    session: SessionField,
}

pub(crate) async fn heartbeat(
    context: Context,
    JsonBody(which): JsonBody<SessionBody>,
) -> Result<Json<Value>, HttpError> {
    let session = which.session.parse()?;
    context.engine.heartbeat(session).await??;
    Ok(Json(json!({ "alive": true })))
}

pub(crate) async fn close(
    context: Context,
    JsonBody(which): JsonBody<SessionBody>,
) -> Result<Json<Value>, HttpError> {
    let session = which.session.parse()?;
    context.engine.submit(None, Command::CloseSession(session)).await??;
    Ok(Json(json!({ "closed": session.id.0 })))
}
