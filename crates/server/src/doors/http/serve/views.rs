//! Reads of locks: current, unless a stale read is requested.

use crate::doors::http::codec::query::ParsedQuery;
use crate::doors::http::translate::error_response::HttpError;
use crate::doors::http::translate::fields::{self, WholeNumber};
use crate::doors::http::translate::show;
use crate::doors::{Context, TICKETS_SHOWN, reads};
use axum::Json;
use holdfast_core::{Refusal, Right};
use holdfast_node::Node;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LockQuery {
    name: String,
    #[serde(default)]
    stale: bool,
}

pub(crate) async fn lock(
    context: Context,
    ParsedQuery(one): ParsedQuery<LockQuery>,
) -> Result<Json<Value>, HttpError> {
    let name = fields::name(&one.name)?;
    let caller = context.engine.caller().clone();
    let look = move |node: &Node| {
        let state = node.state();
        caller.require(state, Right::Read, &name)?;
        Ok::<_, Refusal>(match state.lock_view(&name, TICKETS_SHOWN) {
            Some(view) => show::lock(&view, state.now_ms()),
            None => show::nobody(&name),
        })
    };
    Ok(Json(context.engine.look(one.stale, look).await??))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    limit: Option<WholeNumber>,
    #[serde(default)]
    stale: bool,
}

pub(crate) async fn locks(
    context: Context,
    ParsedQuery(asked): ParsedQuery<ListQuery>,
) -> Result<Json<Value>, HttpError> {
    let after = asked.after.as_deref().map(fields::name).transpose()?;
    let limit = fields::limit(asked.limit)?;
    let prefix = fields::prefix(&asked.prefix)?;
    let caller = context.engine.caller().clone();
    let look = move |node: &Node| {
        let state = node.state();
        let page = reads::list(&caller, state, &prefix, after.as_ref(), limit);
        let locks: Vec<Value> =
            page.locks.iter().map(|view| show::lock(view, state.now_ms())).collect();
        let next = page.next_after.map(|name| show::text(name.as_bytes()));
        json!({ "locks": locks, "next_after": next })
    };
    Ok(Json(context.engine.look(asked.stale, look).await?))
}
