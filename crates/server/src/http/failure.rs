//! What went wrong, as HTTP says it.

use crate::failure::{Failure, Kind};
use axum::Json;
use axum::http::header::{CONNECTION, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match self.kind {
            Kind::Bad => StatusCode::BAD_REQUEST,
            Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Kind::TooSlow => StatusCode::REQUEST_TIMEOUT,
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

pub(crate) async fn no_such_path(uri: Uri) -> Failure {
    Failure::not_found(format!("there is no {}", uri.path()), "see / for what there is")
}

pub(crate) async fn wrong_method(uri: Uri) -> Failure {
    Failure::new(
        Kind::WrongMethod,
        "wrong_method",
        format!("{} is not asked in this way", uri.path()),
        "what changes something is a POST, what only looks is a GET",
    )
}
