//! The layer's own responses, in the shape of Holdfast's errors.

use super::body::ResponseBody;
use crate::{Error, InvalidToken};
use http::{HeaderValue, Response, StatusCode, header};
use std::time::Duration;

pub(super) struct ErrorResponse {
    status: StatusCode,
    body: serde_json::Value,
}

impl ErrorResponse {
    fn new(status: StatusCode, code: &str, message: &str, hint: &str) -> Self {
        let body = serde_json::json!({ "code": code, "message": message, "hint": hint });
        Self { status, body }
    }

    pub(super) fn no_token() -> Self {
        let message = "the request has no Fencing-Token header";
        let hint = "send the lock's token, for instance Fencing-Token: 35, or 35;shared if the lock \
                    is shared";
        Self::new(StatusCode::PRECONDITION_REQUIRED, "bad_token", message, hint)
    }

    pub(super) fn invalid_token(invalid: &InvalidToken) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_token", &invalid.message(), invalid.hint())
    }

    pub(super) fn invalid_path(path: &str) -> Self {
        let message = format!("the path {path:?} is not valid UTF-8 when percent-decoded");
        Self::new(StatusCode::BAD_REQUEST, "bad_path", &message, "correct the URL")
    }

    pub(super) fn too_many(resource: &str, requests: usize) -> Self {
        let message = format!("{requests} requests for {resource:?} are running or waiting");
        Self::busy(&message)
    }

    pub(super) fn timed_out(resource: &str, waited: Duration) -> Self {
        let message =
            format!("an earlier request for {resource:?} is still running after {waited:?}");
        Self::busy(&message)
    }

    fn busy(message: &str) -> Self {
        let hint = "the request was not handled: try again later";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message, hint)
    }

    pub(super) fn failed(error: &Error) -> Self {
        let message = error.message();
        let Some(refused) = error.refused() else {
            let status = match error {
                Error::InvalidResource { .. } => StatusCode::BAD_REQUEST,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            let hint = "the request was not handled: try again later";
            return Self::new(status, "fence_failed", &message, hint);
        };
        let mut response = Self::new(StatusCode::CONFLICT, "fenced", &message, error.hint());
        response.body["shown"] = refused.shown.number().into();
        response.body["highest"] = refused.later().into();
        response
    }

    pub(super) fn panicked() -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self::new(status, "panicked", "the handler panicked", "see the service's log")
    }

    pub(super) fn into_response<R>(self) -> Response<ResponseBody<R>> {
        let mut response = Response::new(ResponseBody::own(self.body.to_string()));
        *response.status_mut() = self.status;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }
}
