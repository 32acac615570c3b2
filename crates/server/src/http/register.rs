//! The fenced register: what a holder does to the outside world, with its token checked.

use super::body::{self, Asked, ModeField, Sent};
use crate::api::Api;
use crate::failure::Failure;
use axum::Json;
use axum::extract::State;
use holdfast_core::{Answer, Command, Fence, Value as RegisterValue};
use holdfast_node::Node;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Put {
    key: String,
    value: String,
    fencing_token: u64,
    mode: Option<ModeField>,
}

/// Writes a value, unless a later holder has been here.
pub(crate) async fn put(
    State(api): State<Api>,
    Sent(put): Sent<Put>,
) -> Result<Json<Value>, Failure> {
    let value = RegisterValue::parse(&put.value)
        .map_err(|error| Failure::bad(error.to_string(), "keep large values elsewhere"))?;
    let command = Command::Put {
        key: body::name(&put.key)?,
        value,
        token: body::token(put.fencing_token)?,
        mode: body::fenced_mode(put.mode)?,
    };
    through(&api, put.key, command).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Raise {
    key: String,
    fencing_token: u64,
    mode: Option<ModeField>,
}

/// Shows a token to the fence without writing: what a new holder does before it reads.
pub(crate) async fn raise(
    State(api): State<Api>,
    Sent(raise): Sent<Raise>,
) -> Result<Json<Value>, Failure> {
    let command = Command::Raise {
        key: body::name(&raise.key)?,
        token: body::token(raise.fencing_token)?,
        mode: body::fenced_mode(raise.mode)?,
    };
    through(&api, raise.key, command).await
}

async fn through(api: &Api, key: String, command: Command) -> Result<Json<Value>, Failure> {
    match api.ask(None, command).await?.answer? {
        Answer::Passed(fence) => Ok(Json(show(&key, Some(&fence)))),
        other => Err(Failure::conflict("other_request", format!("{other:?}"), "try again")),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Key {
    key: String,
    #[serde(default)]
    stale: bool,
}

pub(crate) async fn get(
    State(api): State<Api>,
    Asked(asked): Asked<Key>,
) -> Result<Json<Value>, Failure> {
    let key = body::name(&asked.key)?;
    let look = move |node: &Node| node.state().fence(&key).cloned();
    let fence = api.look(asked.stale, look).await?;
    Ok(Json(show(&asked.key, fence.as_ref())))
}

fn show(key: &str, fence: Option<&Fence>) -> Value {
    let value = fence.and_then(|fence| fence.value.as_ref());
    json!({
        "key": key,
        "value": value.map(|value| super::show::text(value.as_bytes())),
        "highest_exclusive": fence.map(|fence| fence.highest_exclusive.0),
        "highest": fence.map(|fence| fence.highest.0),
    })
}
