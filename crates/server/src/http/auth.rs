//! The password, as HTTP and gRPC send it: `Authorization: Bearer PASSWORD`.

use crate::failure::{Failure, Kind};
use crate::password::Password;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tonic::Status;

/// Lets through what has the password, and what needs none.
pub(crate) async fn check(
    State(password): State<Option<Password>>,
    request: Request,
    next: Next,
) -> Response {
    // Whether the process lives, anybody may ask: what asks it usually has no password.
    let open = matches!(request.uri().path(), "/healthz" | "/readyz");
    let Some(password) = password.filter(|_| !open) else { return next.run(request).await };
    let sent = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes());
    let bearer = sent.and_then(|sent| sent.strip_prefix(b"Bearer "));
    let failure = match bearer {
        Some(bearer) if password.is(bearer.trim_ascii()) => return next.run(request).await,
        Some(_) => refused("wrong password"),
        None => refused("a password is needed"),
    };
    answer(&request, failure)
}

/// A failure in the form that the request's protocol has.
pub(super) fn answer(request: &Request, failure: Failure) -> Response {
    let content = request.headers().get(CONTENT_TYPE).map(|value| value.as_bytes());
    if content.is_some_and(|content| content.starts_with(b"application/grpc")) {
        Status::from(failure).into_http()
    } else {
        failure.into_response()
    }
}

fn refused(message: &'static str) -> Failure {
    let hint = "send the header `Authorization: Bearer PASSWORD`";
    Failure::new(Kind::Unauthenticated, "unauthenticated", message, hint)
}
