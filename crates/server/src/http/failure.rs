//! What went wrong, as HTTP says it.

use crate::failure::{Failure, Kind};
use axum::Json;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::json;

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
        let mut body = json!({ "code": self.code, "message": self.message, "hint": self.hint });
        if let (Some(highest), Some(fields)) = (self.highest, body.as_object_mut()) {
            fields.insert("highest".to_owned(), highest.into());
        }
        (status, Json(body)).into_response()
    }
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
