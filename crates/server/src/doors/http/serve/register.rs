//! The fenced register: writes on behalf of a holder, with its token checked.

use super::body::JsonBody;
use crate::doors::Context;
use crate::doors::http::codec::query::ParsedQuery;
use crate::doors::http::codec::text;
use crate::doors::http::translate::error_response::HttpError;
use crate::doors::http::translate::fields::{self, ModeField, WholeNumber};
use crate::doors::http::translate::show;
use axum::Json;
use holdfast_core::{Answer, Command, Fence, LockName, Refusal, Right};
use holdfast_gateway::ApiError;
use holdfast_gateway::request::{self, ModeKind};
use holdfast_node::Node;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Put {
    key: String,
    value: String,
    fencing_token: WholeNumber,
    mode: Option<ModeField>,
}

/// Writes a value, unless a later token has been seen.
pub(crate) async fn put(
    context: Context,
    JsonBody(put): JsonBody<Put>,
) -> Result<Json<Value>, HttpError> {
    let (key, value) = (fields::name(&put.key)?, text::read(&put.value));
    let mode = put.mode.map(ModeKind::from);
    let command = request::put(key.as_bytes(), value, put.fencing_token.0, mode)?;
    through(&context, key, command).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Raise {
    key: String,
    fencing_token: WholeNumber,
    mode: Option<ModeField>,
}

/// Shows a token to the fence without writing, as a new holder does before it reads.
pub(crate) async fn raise(
    context: Context,
    JsonBody(raise): JsonBody<Raise>,
) -> Result<Json<Value>, HttpError> {
    let key = fields::name(&raise.key)?;
    let mode = raise.mode.map(ModeKind::from);
    let command = request::raise(key.as_bytes(), raise.fencing_token.0, mode)?;
    through(&context, key, command).await
}

async fn through(
    context: &Context,
    key: LockName,
    command: Command,
) -> Result<Json<Value>, HttpError> {
    match context.engine.submit(None, command).await?? {
        Answer::Passed(fence) => Ok(Json(shown(&key, Some(&fence)))),
        _ => Err(ApiError::unexpected().into()),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyQuery {
    key: String,
    #[serde(default)]
    stale: bool,
}

pub(crate) async fn get(
    context: Context,
    ParsedQuery(asked): ParsedQuery<KeyQuery>,
) -> Result<Json<Value>, HttpError> {
    let key = fields::name(&asked.key)?;
    let caller = context.engine.caller().clone();
    let look = move |node: &Node| {
        caller.require(node.state(), Right::Read, &key)?;
        Ok::<_, Refusal>(shown(&key, node.state().fence(&key)))
    };
    Ok(Json(context.engine.look(asked.stale, look).await??))
}

fn shown(key: &LockName, fence: Option<&Fence>) -> Value {
    let value = fence.and_then(|fence| fence.value.as_ref());
    json!({
        "key": show::text(key.as_bytes()),
        "value": value.map(|value| show::text(value.as_bytes())),
        "highest_exclusive": fence.map(|fence| fence.highest_exclusive.0),
        "highest": fence.map(|fence| fence.highest.0),
    })
}
