//! The API and the page.
//!
//! What is refused is a 400 with a reason; a database or lock service that is down is a 503.

use crate::box_office::{BoxOffice, NotServed};
use crate::domain::{Refusal, TicketId, check_client};
use crate::live::Live;
use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};

/// A request is two short names.
const BODY_BYTES_MAX: usize = 16 << 10;

/// A longer request is still read up to here, and thrown away: most clients read a reply only after
/// they have sent everything.
const READ_BYTES_MAX: usize = 64 << 20;

/// How long a client may take to send its request.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// How many sales are listed at most.
const SALES_MAX: i64 = 10_000;

const PAGE: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");

#[derive(Clone)]
struct App {
    office: Arc<BoxOffice>,
    live: Arc<Live>,
}

pub(crate) fn router(office: Arc<BoxOffice>, live: Arc<Live>) -> Router {
    Router::new()
        .route("/reserve_ticket", post(reserve_ticket))
        .route("/book_ticket", post(book_ticket))
        .route("/available_tickets", get(available_tickets))
        .route("/sales", get(sales))
        .route("/state", get(state))
        .route("/lock/{ticket}", get(lock))
        .route("/events", get(events))
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .route("/", get(|| file("text/html; charset=utf-8", PAGE)))
        .route("/style.css", get(|| file("text/css; charset=utf-8", STYLE)))
        .route("/script.js", get(|| file("text/javascript; charset=utf-8", SCRIPT)))
        .fallback(|| async {
            error(StatusCode::NOT_FOUND, "not_found", "there is no such page", "")
        })
        .method_not_allowed_fallback(|| async {
            let hint = "POST to reserve and to book; GET for everything else";
            let message = "the method is not allowed here";
            error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message, hint)
        })
        .with_state(App { office, live })
}

async fn file(kind: &'static str, content: &'static str) -> Response {
    let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")];
    (headers, content).into_response()
}

/// Who wants which ticket.
struct Purchase {
    ticket: TicketId,
    client: String,
}

impl<S: Send + Sync> FromRequest<S> for Purchase {
    type Rejection = NotServed;

    async fn from_request(request: Request, _state: &S) -> Result<Self, NotServed> {
        let (head, body) = request.into_parts();
        let body = timeout(READ_TIMEOUT, read(body)).await;
        let late = |_| Err(Refusal::BadInput("the request did not arrive within 10s".to_owned()));
        Ok(parse(&head.headers, body.unwrap_or_else(late))?)
    }
}

/// Refuses a field that is there twice.
#[derive(serde::Deserialize)]
struct Once {
    #[serde(rename = "ticket_id")]
    _ticket: Option<serde::de::IgnoredAny>,
    #[serde(rename = "client_id")]
    _client: Option<serde::de::IgnoredAny>,
}

async fn read(body: Body) -> Result<Vec<u8>, Refusal> {
    let (mut kept, mut length) = (Vec::new(), 0);
    let mut parts = body.into_data_stream();
    while let Some(part) = parts.next().await {
        let part =
            part.map_err(|_| Refusal::BadInput("the request could not be read".to_owned()))?;
        length += part.len();
        if length > READ_BYTES_MAX {
            break;
        }
        if length <= BODY_BYTES_MAX {
            kept.extend_from_slice(&part);
        }
    }
    if length > BODY_BYTES_MAX {
        return Err(Refusal::BadInput("the request is larger than 16 KiB".to_owned()));
    }
    Ok(kept)
}

fn parse(headers: &HeaderMap, body: Result<Vec<u8>, Refusal>) -> Result<Purchase, Refusal> {
    let bad = |why: &str| Refusal::BadInput(why.to_owned());
    // A page of another site can't send this type without being asked first.
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let mut kind = kind.unwrap_or_default().split(';').map(str::trim);
    if !kind.next().unwrap_or_default().eq_ignore_ascii_case("application/json") {
        return Err(bad("the request's Content-Type is not application/json"));
    }
    let charset = |option: &str| {
        let (name, value) = option.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("charset")
            .then(|| value.trim().trim_matches('"').to_owned())
    };
    if let Some(charset) = kind.find_map(charset)
        && !charset.eq_ignore_ascii_case("utf-8")
    {
        return Err(bad("the request's charset is not utf-8"));
    }
    let body = body?;
    if body.is_empty() {
        return Err(bad("the request is empty"));
    }
    let json: Value = serde_json::from_slice(&body)
        .map_err(|error| Refusal::BadInput(format!("the request is not JSON: {error}")))?;
    let json = json.as_object().ok_or_else(|| bad("the request is not a JSON object"))?;
    // `Value` keeps the last of two fields with one name; a proxy may have checked the first.
    let once: Result<Once, _> = serde_json::from_slice(&body);
    once.map_err(|error| Refusal::BadInput(format!("the request is ambiguous: {error}")))?;
    let field = |name: &str| match json.get(name) {
        None => Err(Refusal::BadInput(format!("{name} is missing"))),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(Refusal::BadInput(format!("{name} is not a string"))),
    };
    let (ticket, client) = (field("ticket_id")?, field("client_id")?);
    let client = check_client(&client)?.to_owned();
    let short = || ticket.chars().take(100).collect();
    let ticket = TicketId::parse(&ticket).ok_or_else(|| Refusal::UnknownTicket(short()))?;
    Ok(Purchase { ticket, client })
}

async fn reserve_ticket(
    State(app): State<App>,
    Purchase { ticket, client }: Purchase,
) -> Result<Response, NotServed> {
    let (office, name) = (app.office.clone(), client.clone());
    let reserved = finish(async move { office.reserve(ticket, &name).await }).await?;
    app.live.look_now();
    let answer = json!({
        "ticket_id": ticket.to_string(),
        "client_id": client,
        "state": "reserved",
        "reserved_until_ms": reserved.until_ms,
        "token": reserved.token,
    });
    Ok(axum::Json(answer).into_response())
}

async fn book_ticket(
    State(app): State<App>,
    Purchase { ticket, client }: Purchase,
) -> Result<Response, NotServed> {
    let (office, name) = (app.office.clone(), client.clone());
    let booked = finish(async move { office.book(ticket, &name).await }).await;
    app.live.look_now();
    let answer = json!({
        "ticket_id": ticket.to_string(),
        "client_id": client,
        "state": "booked",
        "token": booked?.token,
    });
    Ok(axum::Json(answer).into_response())
}

/// Runs to the end even if the client hangs up: half a purchase would keep the seat for a while.
async fn finish<T: Send + 'static>(
    work: impl Future<Output = Result<T, NotServed>> + Send + 'static,
) -> Result<T, NotServed> {
    let died = |error: tokio::task::JoinError| NotServed::Unavailable(error.to_string());
    tokio::spawn(work).await.unwrap_or_else(|error| Err(died(error)))
}

async fn available_tickets(State(app): State<App>) -> Result<Response, NotServed> {
    let all = app.office.store.tickets().await?;
    let available = all.tickets.iter().filter(|ticket| ticket.is_available(all.now_ms));
    let ids: Vec<String> = available.map(|ticket| ticket.id.to_string()).collect();
    Ok(axum::Json(json!({ "available_tickets": ids })).into_response())
}

async fn sales(State(app): State<App>) -> Result<Response, NotServed> {
    let sales = app.office.store.sales(SALES_MAX).await?;
    let payments = app.office.store.payments().await?;
    Ok(axum::Json(json!({ "sales": sales, "payments": payments })).into_response())
}

async fn state(State(app): State<App>) -> Result<Response, NotServed> {
    let state = app.live.look().await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], state.to_string()).into_response())
}

/// The lock under one seat, for the page.
async fn lock(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, NotServed> {
    // Bytes that are not UTF-8 name no ticket.
    let name = name.map_or_else(|_| "\u{fffd}".to_owned(), |Path(name)| name);
    let unknown = || Refusal::UnknownTicket(name.chars().take(100).collect());
    let id = TicketId::parse(&name).ok_or_else(unknown)?;
    let ticket = app.office.store.ticket(id).await?.ok_or_else(unknown)?;
    Ok(axum::Json(app.live.lock_of(&ticket).await).into_response())
}

async fn ready(State(app): State<App>) -> Result<&'static str, NotServed> {
    app.office.store.ping().await?;
    if let Some(seats) = &app.office.seats {
        seats.ping().await?;
    }
    Ok("ready\n")
}

/// The state of all seats, now and after each change.
async fn events(
    State(app): State<App>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>> + Send> {
    // Whoever does not read gets the newest state when it does.
    let (send, receive) = tokio::sync::mpsc::channel(1);
    let mut states = app.live.subscribe();
    states.mark_unchanged();
    tokio::spawn(async move {
        // The last one may be old: its time would be, too.
        let mut state: Option<Arc<str>> = match app.live.look().await {
            Ok(state) => Some(state.to_string().into()),
            Err(error) => Some(json!({ "error": error.to_string() }).to_string().into()),
        };
        loop {
            if let Some(state) = state.take()
                && send.send(Ok(Event::default().data(&*state))).await.is_err()
            {
                return;
            }
            tokio::select! {
                changed = states.changed() => if changed.is_err() { return },
                () = send.closed() => return,
            }
            state = states.borrow_and_update().clone();
        }
    });
    Sse::new(ReceiverStream::new(receive)).keep_alive(KeepAlive::default())
}

impl IntoResponse for NotServed {
    fn into_response(self) -> Response {
        match self {
            Self::Refused(refusal) => {
                error(StatusCode::BAD_REQUEST, refusal.code(), &refusal.to_string(), refusal.hint())
            }
            Self::Unavailable(why) => {
                tracing::warn!("{why}");
                error(StatusCode::SERVICE_UNAVAILABLE, "unavailable", &why, "try again")
            }
        }
    }
}

fn error(status: StatusCode, code: &str, message: &str, hint: &str) -> Response {
    let mut body = json!({ "code": code, "message": message });
    if !hint.is_empty() {
        body["hint"] = hint.into();
    }
    (status, axum::Json(body)).into_response()
}
