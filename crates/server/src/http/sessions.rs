//! Sessions: a client's liveness, apart from any connection.

use super::body::Sent;
use super::fields::{self, SessionField};
use super::show;
use crate::api::{Api, within};
use crate::failure::Failure;
use crate::random;
use axum::Json;
use axum::extract::State;
use holdfast_core::{Answer, Command, OpenSession, Secret, SessionKind};
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
) -> Result<Json<Value>, Failure> {
    let secret = Secret(random::bytes());
    let label = fields::label(open.label.as_deref())?;
    let command = OpenSession { secret, ttl_ms: open.ttl_ms, label, kind: SessionKind::Client };
    match api.ask(None, Command::OpenSession(command)).await?.answer? {
        Answer::SessionOpened(id) => Ok(Json(json!({
            "session": { "id": id.0, "secret": show::secret(&secret) },
            "ttl_ms": open.ttl_ms,
        }))),
        _ => Err(Failure::unexpected()),
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
) -> Result<Json<Value>, Failure> {
    let session = which.session.parse()?;
    if within(api.handle.beat(session)).await? {
        Ok(Json(json!({ "alive": true })))
    } else {
        Err(api.not_alive(session).await?)
    }
}

pub(crate) async fn close(
    State(api): State<Api>,
    Sent(which): Sent<Which>,
) -> Result<Json<Value>, Failure> {
    let session = which.session.parse()?;
    api.ask(None, Command::CloseSession(session)).await?.answer?;
    Ok(Json(json!({ "closed": session.id.0 })))
}
