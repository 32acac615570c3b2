//! The overview page at `/`, and the OpenAPI description.

use axum::http::header;
use axum::response::{Html, IntoResponse};

const OPENAPI: &str = include_str!("../openapi.json");

const PAGE: &str = include_str!("../root.html");

pub(crate) async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI)
}

pub(crate) async fn root() -> Html<&'static str> {
    Html(PAGE)
}
