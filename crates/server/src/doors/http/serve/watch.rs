//! Streams what happens to locks as server-sent events.

use crate::doors::Context;
use crate::doors::http::codec::query::ParsedQuery;
use crate::doors::http::serve::connection::{Connection, CutUnlessRead};
use crate::doors::http::translate::error_response::{self, HttpError};
use crate::doors::http::translate::fields;
use crate::doors::http::translate::show;
use crate::engine::{Missed, Subscriber};
use axum::response::sse::{Event, KeepAlive, KeepAliveStream, Sse};
use holdfast_core::{Effect, Scope};
use holdfast_gateway::ApiError;
use serde::Deserialize;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{self, Poll, ready};
use std::time::Duration;
use tokio_stream::Stream;

/// Events that may queue up for a slow watcher. Beyond it the stream ends with a notice; if that is
/// not read either, the connection is closed.
pub(crate) const EVENTS_MAX: usize = 1_024;

/// How often a quiet stream sends a keep-alive, so that a dead connection is noticed.
const ALIVE_EVERY: Duration = Duration::from_secs(15);

/// An event stream with keep-alives.
pub(crate) type Events<S> = Sse<KeepAliveStream<S>>;

pub(crate) fn events<S>(stream: S) -> Events<S>
where
    S: Stream<Item = Result<Event, Infallible>> + Send + 'static,
{
    Sse::new(stream).keep_alive(KeepAlive::new().interval(ALIVE_EVERY))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WatchQuery {
    name: Option<String>,
    prefix: Option<String>,
}

pub(crate) async fn watch(
    context: Context,
    connection: Connection,
    ParsedQuery(asked): ParsedQuery<WatchQuery>,
) -> Result<Events<WatchEvents>, HttpError> {
    let scope = match (asked.name, asked.prefix) {
        (Some(name), None) => Scope::Name(fields::name(&name)?),
        (None, Some(prefix)) if !prefix.is_empty() => Scope::Prefix(Some(fields::name(&prefix)?)),
        (None, _) => Scope::Prefix(None),
        (Some(_), Some(_)) => {
            return Err(ApiError::bad("give name or prefix", "one of the two, not both").into());
        }
    };
    let watch = context.engine.watch(scope, EVENTS_MAX).await?;
    let cut = connection.cut_unless_read(watch.too_slow());
    Ok(events(WatchEvents { watch, begun: false, over: false, _cut: cut }))
}

pub(crate) struct WatchEvents {
    watch: Subscriber,
    begun: bool,
    over: bool,
    _cut: CutUnlessRead,
}

impl Stream for WatchEvents {
    type Item = Result<Event, Infallible>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        let event = if self.begun {
            match ready!(self.watch.poll_effect(context)) {
                Ok((effect, now_ms)) => event(event_json(&effect, now_ms)),
                Err(missed) => {
                    self.over = true;
                    last_event(missed)
                }
            }
        } else {
            // After this event, the client misses nothing.
            self.begun = true;
            event(("watching", json!({})))
        };
        Poll::Ready(Some(Ok(event)))
    }
}

fn event((kind, data): (&str, Value)) -> Event {
    Event::default().event(kind).data(data.to_string())
}

/// The last event of a stream that has missed something, with the reason.
pub(crate) fn last_event(missed: Missed) -> Event {
    event(("missed", error_response::shown(&missed.into())))
}

/// An effect as an event. Any client may see it, so it contains no secrets.
fn event_json(effect: &Effect, now_ms: u64) -> (&'static str, Value) {
    let names: Vec<String> =
        effect.names().iter().map(|name| show::text(name.as_bytes())).collect();
    match effect {
        Effect::Granted(grant) => {
            let mut shown = show::grant(grant);
            if let Some(fields) = shown.as_object_mut() {
                fields.remove("secret");
                let label = grant.label.as_ref().map(|label| show::text(label.as_bytes()));
                fields.insert("label".to_owned(), label.into());
            }
            ("granted", shown)
        }
        Effect::Ended(ended) => (
            "ended",
            json!({
                "names": names,
                "fencing_token": ended.token.0,
                "how": ended.how.to_string(),
                "held": ended.held,
                "label": ended.label.as_ref().map(|label| show::text(label.as_bytes())),
                "note": ended.note.as_ref().map(|note| show::text(note.as_bytes())),
            }),
        ),
        Effect::Delayed { until_ms, after, .. } => (
            "delayed",
            json!({
                "names": names,
                "for_ms": until_ms.saturating_sub(now_ms),
                "after": show::ending(after),
            }),
        ),
        Effect::RevocationAsked { token, by, reason, until_ms, force, .. } => (
            "revocation_asked",
            json!({
                "names": names,
                "fencing_token": token.0,
                "by": show::text(by.as_bytes()),
                "reason": show::text(reason.as_bytes()),
                "within_ms": until_ms.saturating_sub(now_ms),
                "force": force,
            }),
        ),
        Effect::Noted { token, note, .. } => (
            "noted",
            json!({
                "names": names,
                "fencing_token": token.0,
                "note": note.as_ref().map(|note| show::text(note.as_bytes())),
            }),
        ),
        Effect::Downgraded { token, .. } => {
            ("downgraded", json!({ "names": names, "fencing_token": token.0 }))
        }
        Effect::Recovered { token, death, .. } => (
            "recovered",
            json!({ "names": names, "fencing_token": token.0, "from": show::ending(death) }),
        ),
        Effect::SessionEnded { session, how } => {
            ("session_ended", json!({ "session": session.0, "how": how.to_string() }))
        }
        Effect::Relabelled { token, label, .. } => (
            "relabelled",
            json!({
                "names": names,
                "fencing_token": token.0,
                "label": show::text(label.as_bytes()),
            }),
        ),
        Effect::ObjectChanged { now, .. } => {
            ("object_changed", json!({ "names": names, "now": now.map(|kind| kind.to_string()) }))
        }
        Effect::Published { channel, .. } => {
            ("published", json!({ "channel": show::text(channel.as_bytes()) }))
        }
        Effect::NodeChanged { path, zxid, .. } => {
            ("node_changed", json!({ "path": &**path, "zxid": zxid }))
        }
        Effect::SessionAttached { session, .. } => {
            ("session_attached", json!({ "session": session.0 }))
        }
        // They concern no lock, so no watch matches them.
        Effect::AccessChanged(_) => ("access_changed", json!({})),
        Effect::Audited(record) => ("audited", json!({ "action": record.entry.action.as_str() })),
    }
}
