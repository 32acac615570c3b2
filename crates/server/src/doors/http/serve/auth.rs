//! The password, as HTTP and gRPC send it: `Authorization: Bearer PASSWORD`.

use crate::password::Password;
use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::Response;
use holdfast_gateway::{ApiError, Code};

/// Passes requests that have the password, and those that need none.
pub(crate) async fn check(
    State(password): State<Option<Password>>,
    request: Request,
    next: Next,
) -> Response {
    // Health checks are open: the probes that make them usually have no password.
    let open = matches!(request.uri().path(), "/healthz" | "/readyz");
    let Some(password) = password.filter(|_| !open) else { return next.run(request).await };
    let sent = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes());
    let bearer = sent.and_then(|sent| sent.strip_prefix(b"Bearer "));
    let failure = match bearer {
        Some(bearer) if password.is(bearer.trim_ascii()) => return next.run(request).await,
        Some(_) => refused("wrong password"),
        None => refused("a password is needed"),
    };
    super::refuse::refuse(request, failure).await
}

fn refused(message: &'static str) -> ApiError {
    let hint = "send the header `Authorization: Bearer PASSWORD`";
    ApiError::new(Code::Unauthenticated, message, hint)
}
