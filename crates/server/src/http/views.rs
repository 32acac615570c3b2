//! Looking at locks: current unless a stale look is asked for.

use super::body::{self, Asked};
use super::show;
use crate::api::{Api, PAGE_MAX, TICKETS_SHOWN};
use crate::failure::Failure;
use axum::Json;
use axum::extract::State;
use holdfast_node::Node;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct One {
    name: String,
    #[serde(default)]
    stale: bool,
}

pub(crate) async fn lock(
    State(api): State<Api>,
    Asked(one): Asked<One>,
) -> Result<Json<Value>, Failure> {
    let name = body::name(&one.name)?;
    let look = move |node: &Node| {
        let state = node.state();
        state.lock_view(&name, TICKETS_SHOWN).map(|view| show::lock(&view, state.now_ms()))
    };
    let shown = api.look(one.stale, look).await?;
    let nobody =
        || json!({ "name": one.name, "holding": 0, "holders": [], "waiting": 0, "waiters": [] });
    Ok(Json(shown.unwrap_or_else(nobody)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listing {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    limit: Option<usize>,
    #[serde(default)]
    stale: bool,
}

pub(crate) async fn locks(
    State(api): State<Api>,
    Asked(asked): Asked<Listing>,
) -> Result<Json<Value>, Failure> {
    let after = asked.after.as_deref().map(body::name).transpose()?;
    let limit = asked.limit.unwrap_or(100).clamp(1, PAGE_MAX);
    let look = move |node: &Node| {
        let state = node.state();
        let page = state.list(asked.prefix.as_bytes(), after.as_ref(), limit);
        let locks: Vec<Value> =
            page.locks.iter().map(|view| show::lock(view, state.now_ms())).collect();
        let next = page.next_after.map(|name| show::text(name.as_bytes()));
        json!({ "locks": locks, "next_after": next })
    };
    Ok(Json(api.look(asked.stale, look).await?))
}
