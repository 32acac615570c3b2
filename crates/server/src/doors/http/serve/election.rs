//! Elections: the leader is the holder of the lock. Its label is its value, and its token its term.

use super::body::JsonBody;
use super::locks::AcquireBody;
use super::watch::{self, EVENTS_MAX, Events};
use crate::doors::Context;
use crate::doors::http::codec::query::ParsedQuery;
use crate::doors::http::serve::connection::{Connection, CutUnlessRead};
use crate::doors::http::translate::error_response::HttpError;
use crate::doors::http::translate::fields::{self, SessionField};
use crate::doors::http::translate::show;
use crate::engine::Subscriber;
use axum::Json;
use axum::response::sse::Event;
use holdfast_core::{Effect, EventKind, Label, LockName, Refusal, Right, Scope, Token};
use holdfast_gateway::request;
use holdfast_node::Node;
use serde::Deserialize;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{self, Poll, ready};
use tokio_stream::Stream;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Campaign {
    name: String,
    /// What the candidate announces, for instance the address where it can be reached.
    value: Option<String>,
    ttl_ms: Option<u64>,
    wait_ms: Option<u64>,
    note: Option<String>,
    request_id: Option<String>,
    session: Option<SessionField>,
}

/// Runs for election; responds once elected.
pub(crate) async fn campaign(
    context: Context,
    connection: Connection,
    JsonBody(sent): JsonBody<Campaign>,
) -> Result<Json<Value>, HttpError> {
    let grab = AcquireBody {
        name: Some(sent.name),
        label: sent.value,
        ttl_ms: sent.ttl_ms,
        wait_ms: sent.wait_ms,
        note: sent.note,
        request_id: sent.request_id,
        session: sent.session,
        ..AcquireBody::default()
    };
    let wanted = request::label(fields::optional(grab.label.as_deref()))?;
    let grant = grab.acquire(&context, &connection).await?;
    // A label may differ in a retry; a leader's value may not.
    if grant.session.is_none() && grant.label != wanted {
        return Err(Refusal::OtherRequest.into());
    }
    let mut shown = show::grant(&grant);
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("value".to_owned(), value(grant.label.as_ref()));
    }
    Ok(Json(shown))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ElectionQuery {
    name: String,
    #[serde(default)]
    stale: bool,
}

/// The current leader.
pub(crate) async fn leader(
    context: Context,
    ParsedQuery(asked): ParsedQuery<ElectionQuery>,
) -> Result<Json<Value>, HttpError> {
    let name = fields::name(&asked.name)?;
    let caller = context.engine.caller().clone();
    let look = move |node: &Node| {
        caller.require(node.state(), Right::Read, &name)?;
        Ok::<_, Refusal>(leads(&name, leader_of(node, &name).as_ref()))
    };
    Ok(Json(context.engine.look(asked.stale, look).await??))
}

struct Leader {
    token: Token,
    label: Option<Label>,
}

fn leader_of(node: &Node, name: &LockName) -> Option<Leader> {
    let holder = node.state().lock_view(name, 1)?.holders.into_iter().next()?;
    Some(Leader { token: holder.token, label: holder.label })
}

fn leads(name: &LockName, leader: Option<&Leader>) -> Value {
    let leader = leader.map(
        |leader| json!({ "fencing_token": leader.token.0, "value": value(leader.label.as_ref()) }),
    );
    json!({ "name": show::text(name.as_bytes()), "leader": leader })
}

fn value(label: Option<&Label>) -> Value {
    label.map(|label| show::text(label.as_bytes())).into()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ObserveQuery {
    name: String,
}

/// Streams the leader: first the current one, then every change.
pub(crate) async fn observe(
    context: Context,
    connection: Connection,
    ParsedQuery(asked): ParsedQuery<ObserveQuery>,
) -> Result<Events<ObserveStream>, HttpError> {
    let name = fields::name(&asked.name)?;
    // Subscribe first: anything that happens before the look is included in the look.
    let watch = context.engine.watch(Scope::Name(name.clone()), EVENTS_MAX).await?;
    let of = name.clone();
    let look = move |node: &Node| {
        let granted = |event: &&holdfast_core::Event| event.what == EventKind::Granted;
        let last = node.state().history(&of).find(granted).map(|event| event.token);
        (leader_of(node, &of), last)
    };
    let (leader, last) = context.engine.read(look).await?;
    let last_reported = leader.as_ref().map(|leader| leader.token);
    let first = Some(leads(&name, leader.as_ref()));
    let cut = connection.cut_unless_read(watch.too_slow());
    let seen = last.max(last_reported);
    let observing =
        ObserveStream { watch, name, first, seen, last_reported, over: false, _cut: cut };
    Ok(watch::events(observing))
}

pub(crate) struct ObserveStream {
    watch: Subscriber,
    name: LockName,
    /// The initial state, until it has been sent.
    first: Option<Value>,
    /// The latest leader known of: anything not later was included in the first look.
    seen: Option<Token>,
    /// The leader that was last reported; `None` if there is none.
    last_reported: Option<Token>,
    over: bool,
    _cut: CutUnlessRead,
}

impl ObserveStream {
    /// The event to send for an effect, if it changes the leader.
    fn change(&mut self, effect: &Effect) -> Option<Value> {
        match effect {
            Effect::Granted(grant) if Some(grant.token) > self.seen => {
                (self.seen, self.last_reported) = (Some(grant.token), Some(grant.token));
                let leader = Leader { token: grant.token, label: grant.label.clone() };
                Some(leads(&self.name, Some(&leader)))
            }
            Effect::Ended(ended) if ended.held && self.last_reported == Some(ended.token) => {
                self.last_reported = None;
                Some(leads(&self.name, None))
            }
            _ => None,
        }
    }
}

impl Stream for ObserveStream {
    type Item = Result<Event, Infallible>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        let mut last_reported = self.first.take();
        while last_reported.is_none() {
            last_reported = match ready!(self.watch.poll_effect(context)) {
                Ok((effect, _)) => self.change(&effect),
                Err(missed) => {
                    self.over = true;
                    return Poll::Ready(Some(Ok(watch::last_event(missed))));
                }
            };
        }
        Poll::Ready(last_reported.map(|last_reported| {
            Ok(Event::default().event("leader").data(last_reported.to_string()))
        }))
    }
}
