//! Operators' calls: revoking other clients' locks, and queries about them.

use super::body::JsonBody;
use crate::doors::http::codec::query::ParsedQuery;
use crate::doors::http::codec::text;
use crate::doors::http::translate::error_response::HttpError;
use crate::doors::http::translate::fields::{self, WholeNumber};
use crate::doors::http::translate::show;
use crate::doors::{Context, TICKETS_SHOWN, reads};
use axum::Json;
use holdfast_core::{Answer, Event, EventKind, Label, Refusal, Right, WhyLink};
use holdfast_gateway::ApiError;
use holdfast_gateway::request::{self, OperatorRequest};
use holdfast_node::Node;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevokeField {
    name: String,
    fencing_token: Option<WholeNumber>,
    by: String,
    reason: String,
    within_ms: u64,
    force: Option<bool>,
}

fn operator(name: &str, token: Option<WholeNumber>, by: &str, reason: &str) -> OperatorRequest {
    OperatorRequest {
        name: text::read(name),
        token: token.map(|token| token.0),
        by: text::read(by),
        reason: text::read(reason),
    }
}

/// Asks the holders to release the lock by a deadline.
pub(crate) async fn revoke(
    context: Context,
    JsonBody(sent): JsonBody<RevokeField>,
) -> Result<Json<Value>, HttpError> {
    let operator = operator(&sent.name, sent.fencing_token, &sent.by, &sent.reason);
    let command = operator.revoke(sent.within_ms, sent.force.unwrap_or_default())?;
    match context.engine.submit(None, command).await?? {
        Answer::RevocationAsked(asked) => Ok(Json(json!({ "asked": asked }))),
        _ => Err(ApiError::unexpected().into()),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForceField {
    name: String,
    fencing_token: Option<WholeNumber>,
    by: String,
    reason: String,
}

/// Ends the holders' tickets without their consent.
pub(crate) async fn force(
    context: Context,
    JsonBody(sent): JsonBody<ForceField>,
) -> Result<Json<Value>, HttpError> {
    let operator = operator(&sent.name, sent.fencing_token, &sent.by, &sent.reason);
    match context.engine.submit(None, operator.force()?).await?? {
        Answer::Forced(ended) => Ok(Json(json!({ "ended": ended }))),
        _ => Err(ApiError::unexpected().into()),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NameQuery {
    name: String,
    #[serde(default)]
    stale: bool,
}

/// Why a lock is not free: who is waiting for whom.
pub(crate) async fn why(
    context: Context,
    ParsedQuery(asked): ParsedQuery<NameQuery>,
) -> Result<Json<Value>, HttpError> {
    let name = fields::name(&asked.name)?;
    let shown = show::text(name.as_bytes());
    let caller = context.engine.caller().clone();
    let look = move |node: &Node| {
        caller.require(node.state(), Right::Read, &name)?;
        Ok::<_, Refusal>(reads::why(&caller, node.state(), &name))
    };
    let why = context.engine.look(asked.stale, look).await??;
    let text = |label: &Option<Label>| label.as_ref().map(|label| show::text(label.as_bytes()));
    let links: Vec<Value> = why
        .links
        .iter()
        .map(|link| match link {
            WhyLink::Behind { waiter, label, name, front, front_label, permit } => json!({
                "link": "behind",
                "waiter": waiter.0,
                "label": text(label),
                "name": show::text(name.as_bytes()),
                "front": front.0,
                "front_label": text(front_label),
                "permit": permit,
            }),
            WhyLink::Kept { token, label, waiter, declared } => json!({
                "link": "kept",
                "token": token.0,
                "label": text(label),
                "waiter": waiter.0,
                "declared": declared,
            }),
        })
        .collect();
    let circles: Vec<Value> = why
        .circles
        .iter()
        .map(|circle| {
            let tokens: Vec<u64> = circle.tokens.iter().map(|token| token.0).collect();
            json!({ "tokens": tokens, "declared": circle.declared })
        })
        .collect();
    Ok(Json(json!({ "name": shown, "links": links, "circles": circles, "cut": why.cut })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryField {
    name: String,
    limit: Option<WholeNumber>,
    #[serde(default)]
    stale: bool,
}

/// A lock's events, newest first, as far as they are remembered.
pub(crate) async fn history(
    context: Context,
    ParsedQuery(asked): ParsedQuery<HistoryField>,
) -> Result<Json<Value>, HttpError> {
    let name = fields::name(&asked.name)?;
    let limit = fields::limit(asked.limit)?;
    let caller = context.engine.caller().clone();
    let look = move |node: &Node| {
        caller.require(node.state(), Right::Read, &name)?;
        let events: Vec<Value> = node.state().history(&name).take(limit).map(event).collect();
        Ok::<_, Refusal>(json!({ "name": show::text(name.as_bytes()), "events": events }))
    };
    Ok(Json(context.engine.look(asked.stale, look).await??))
}

fn event(event: &Event) -> Value {
    let text = |label: &Label| show::text(label.as_bytes());
    let (what, more) = match &event.what {
        EventKind::Granted => ("granted".to_owned(), Value::Null),
        EventKind::Ended(how) => (how.to_string(), Value::Null),
        EventKind::Broken(forced) => {
            let reason = show::text(forced.reason.as_bytes());
            ("forced".to_owned(), json!({ "by": text(&forced.by), "reason": reason }))
        }
        EventKind::RevocationAsked { by, reason } => {
            let reason = show::text(reason.as_bytes());
            ("revocation asked".to_owned(), json!({ "by": text(by), "reason": reason }))
        }
        EventKind::Downgraded => ("downgraded".to_owned(), Value::Null),
        EventKind::Recovered { death } => ("recovered".to_owned(), json!({ "from": death.0 })),
        EventKind::Restored => ("restored".to_owned(), Value::Null),
        EventKind::Relabelled => ("relabelled".to_owned(), Value::Null),
    };
    json!({
        "number": event.number,
        "at_ms": event.at_ms,
        "wall_ms": event.wall_ms,
        "token": event.token.0,
        "label": event.label.as_ref().map(text),
        "what": what,
        "more": more,
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionsField {
    after: Option<WholeNumber>,
    limit: Option<WholeNumber>,
    #[serde(default)]
    stale: bool,
}

/// Sessions that are alive, whether or not their client is connected right now.
pub(crate) async fn sessions(
    context: Context,
    ParsedQuery(asked): ParsedQuery<SessionsField>,
) -> Result<Json<Value>, HttpError> {
    let after = asked.after.map(|after| request::session_id(after.0)).transpose()?;
    let limit = fields::limit(asked.limit)?;
    let caller = context.engine.caller().clone();
    let look = move |node: &Node| {
        // Labels of sessions belong to no name.
        caller.require_prefix(node.state(), Right::Read, None)?;
        let sessions = node.state().sessions(after, limit, TICKETS_SHOWN);
        let full = sessions.len() == limit;
        let next_after = sessions.last().filter(|_| full).map(|session| session.id.0);
        let shown: Vec<Value> = sessions
            .iter()
            .map(|session| {
                json!({
                    "id": session.id.0,
                    "label": session.label.as_ref().map(|label| show::text(label.as_bytes())),
                    "kind": if session.kind.is_node() { "node" } else { "client" },
                    "ttl_ms": session.ttl_ms,
                    "open_for_ms": node.state().now_ms().saturating_sub(session.opened_ms),
                    "tickets": session.tickets.iter().map(|token| token.0).collect::<Vec<_>>(),
                })
            })
            .collect();
        Ok::<_, Refusal>(json!({ "sessions": shown, "next_after": next_after }))
    };
    Ok(Json(context.engine.look(asked.stale, look).await??))
}
