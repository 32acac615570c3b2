//! Refuses requests before they reach a handler.

use super::body;
use crate::doors::grpc;
use crate::doors::http::translate::error_response::response;
use axum::extract::Request;
use axum::http::header::{CONNECTION, HeaderValue};
use axum::response::Response;
use holdfast_gateway::{ApiError, Code};

/// Refuses a request whose body has not been read, in the form of its protocol.
pub(crate) async fn refuse(request: Request, error: ApiError) -> Response {
    if grpc::is_grpc(request.headers()) {
        return grpc::status(error).into_http();
    }
    let whole = body::discard(request.into_body()).await;
    let mut response = response(&error);
    if !whole {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

pub(crate) async fn no_such_path(request: Request) -> Response {
    let message = format!("there is no {}", request.uri().path());
    refuse(request, ApiError::new(Code::NotFound, message, "see / for an overview")).await
}

pub(crate) async fn wrong_method(request: Request) -> Response {
    let error = ApiError::new(
        Code::WrongMethod,
        format!("{} does not support this method", request.uri().path()),
        "use POST to change something and GET to read",
    );
    refuse(request, error).await
}
