//! Errors as HTTP responses.

use crate::doors::grpc;
use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use holdfast_gateway::{ApiError, Code};
use serde_json::{Value, json};

/// An error as an HTTP response.
pub(crate) fn response(error: &ApiError) -> Response {
    let status = StatusCode::from_u16(error.code.http_status());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, Json(shown(error))).into_response();
    let more = match error.code {
        Code::Unauthenticated => Some((WWW_AUTHENTICATE, "Bearer")),
        // The rest of the body may still be on its way, which makes the connection unusable.
        Code::TooLarge | Code::TooSlow => Some((CONNECTION, "close")),
        code if code.may_work_later() => Some((RETRY_AFTER, "1")),
        _ => None,
    };
    // For whoever passes the response on.
    response.extensions_mut().insert(error.code);
    if let Some((name, value)) = more {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A handler's error.
pub(crate) struct HttpError(pub(crate) ApiError);

impl<E: Into<ApiError>> From<E> for HttpError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        response(&self.0)
    }
}

pub(crate) fn shown(error: &ApiError) -> Value {
    let ApiError { code, message, hint, highest, .. } = error;
    let mut shown = json!({ "code": code.as_str(), "message": message, "hint": hint });
    if let (Some(highest), Some(fields)) = (highest, shown.as_object_mut()) {
        fields.insert("highest".to_owned(), (*highest).into());
    }
    shown
}

/// An error in the form of the request's protocol.
pub(crate) fn respond(to_grpc: bool, error: ApiError) -> Response {
    if to_grpc { grpc::status(error).into_http() } else { response(&error) }
}
