//! What went wrong, as HTTP says it.

use super::body;
use crate::failure::{Failure, Kind};
use crate::grpc;
use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tonic::Status;

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match self.kind {
            Kind::Bad => StatusCode::BAD_REQUEST,
            Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Kind::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Kind::TooMuch => StatusCode::TOO_MANY_REQUESTS,
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Kind::Unauthenticated => StatusCode::UNAUTHORIZED,
            Kind::Denied => StatusCode::FORBIDDEN,
            Kind::Conflict => StatusCode::CONFLICT,
            Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        };
        let mut response = (status, Json(shown(&self))).into_response();
        let more = match self.kind {
            Kind::Unauthenticated => Some((WWW_AUTHENTICATE, "Bearer")),
            Kind::Unavailable => Some((RETRY_AFTER, "1")),
            // What is left of the body may still be on its way: this connection is of no use.
            Kind::TooLarge | Kind::TooSlow => Some((CONNECTION, "close")),
            _ => None,
        };
        if let Some((name, value)) = more {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

pub(super) fn shown(failure: &Failure) -> Value {
    let Failure { code, message, hint, highest, .. } = failure;
    let mut shown = json!({ "code": code, "message": message, "hint": hint });
    if let (Some(highest), Some(fields)) = (highest, shown.as_object_mut()) {
        fields.insert("highest".to_owned(), (*highest).into());
    }
    shown
}

/// Says what went wrong, in the form that the request's protocol has.
pub(super) fn respond(to_grpc: bool, failure: Failure) -> Response {
    if to_grpc { Status::from(failure).into_http() } else { failure.into_response() }
}

/// Refuses a request whose body nobody has read, in the form that its protocol has.
pub(super) async fn refuse(request: Request, failure: Failure) -> Response {
    if grpc::is_grpc(request.headers()) {
        return Status::from(failure).into_http();
    }
    let whole = body::discard(request.into_body()).await;
    let mut response = failure.into_response();
    if !whole {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

pub(crate) async fn no_such_path(request: Request) -> Response {
    let message = format!("there is no {}", request.uri().path());
    refuse(request, Failure::not_found(message, "see / for what there is")).await
}

pub(crate) async fn wrong_method(request: Request) -> Response {
    let failure = Failure::new(
        Kind::WrongMethod,
        "wrong_method",
        format!("{} is not asked in this way", request.uri().path()),
        "what changes something is a POST, what only looks is a GET",
    );
    refuse(request, failure).await
}
