//! What there is, for whoever looks at `/` first.

use axum::http::header;
use axum::response::{Html, IntoResponse};

/// The API, for programs that read such.
const OPENAPI: &str = include_str!("openapi.json");

pub(crate) async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI)
}

pub(crate) async fn root() -> Html<&'static str> {
    Html(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Holdfast</title>\
         <style>body{font:16px/1.5 system-ui;max-width:40em;margin:3em auto;padding:0 1em}\
         code{background:#eee;padding:.1em .3em}</style>\
         <h1>Holdfast</h1>\
         <p>A lock is a line of numbered tickets. The number being served is the fencing token.</p>\
         <ul>\
         <li><a href=/v1/status>status</a> of the cluster, <a href=/v1/members>members</a>\
         <li><a href=/v1/locks>locks</a>, <a href=/v1/sessions>sessions</a>\
         <li><a href=/metrics>metrics</a> for Prometheus, <a href=/healthz>healthz</a>, \
         <a href=/readyz>readyz</a>\
         <li><a href=/openapi.json>openapi.json</a>: every call, for programs\
         </ul>\
         <p>Take a lock: <code>curl -s /v1/grab_lock -d \
         '{\"name\":\"seat-12A\",\"ttl_ms\":15000}'</code></html>",
    )
}
