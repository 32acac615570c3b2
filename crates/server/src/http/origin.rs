//! Web pages of others: a browser lets any page send a POST to this server, and says whose it is.

use crate::failure::{Failure, Kind};
use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware::Next;
use axum::response::Response;

/// Lets through what no browser sent, what its user's own page sent, and what only looks: a page
/// of others can't read the answer.
pub(crate) async fn check(request: Request, next: Next) -> Response {
    let looks = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if looks || is_own(request.headers(), request.uri()) {
        return next.run(request).await;
    }
    let failure = Failure::new(
        Kind::Denied,
        "other_origin",
        "a web page of another site sent this",
        "send it from a program, or from a page of this server; those send no Origin header, or \
         this server's",
    );
    super::failure::refuse(request, failure).await
}

/// Whether what was sent comes from no page, or from one of this server.
fn is_own(headers: &HeaderMap, uri: &Uri) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    // HTTP/2 names the host in the address.
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| uri.authority().map(Authority::as_str));
    let page = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    page.zip(host).is_some_and(|((_, page), host)| page.eq_ignore_ascii_case(host))
}
