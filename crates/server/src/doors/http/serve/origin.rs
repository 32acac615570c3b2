//! Protects against browsers: which pages may use this server, and under which host names.
//!
//! A browser lets any page send a POST to this server, and sends along whose page it is (`Origin`).
//! And a site can make its own name point to this machine (DNS rebinding): its page then counts as
//! one of this server's, unless the server knows its own names (`Host`).

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware::Next;
use axum::response::Response;
use holdfast_gateway::{ApiError, Code};
use std::net::IpAddr;
use std::sync::Arc;

/// The host names that this server accepts.
#[derive(Debug, Clone)]
pub(crate) enum Hosts {
    /// Any: there is a password, and no other site's page knows it.
    Any,
    /// IP addresses, the names of loopback, and these, in lower case.
    These(Arc<[String]>),
}

impl Hosts {
    pub(crate) fn these(hosts: impl IntoIterator<Item = String>) -> Self {
        Self::These(hosts.into_iter().map(|host| plain(&host)).collect())
    }

    /// Whether a request for this host, with or without a port, is meant for this server. A site
    /// can't make a browser send an IP address or a loopback name as the host.
    fn allows(&self, host: &str) -> bool {
        let Self::These(hosts) = self else { return true };
        let host = plain(host_only(host));
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        literal.parse::<IpAddr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
            || hosts.contains(&host)
    }
}

/// Normalizes a name: case and the trailing dot of the root do not matter.
fn plain(host: &str) -> String {
    let host = host.trim();
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// Strips the port.
fn host_only(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Passes requests that name this server, or no host, and that come from no browser, or from a page
/// of this server, or only read: a page of another site can't see the response.
pub(crate) async fn check(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    let host = host(request.headers(), request.uri());
    // A request without a host does not come from a browser.
    let failure = if host.is_some_and(|host| !hosts.allows(host)) {
        let host = host.unwrap_or_default();
        let host: String = host.chars().take(HOST_SHOWN_MAX).collect();
        ApiError::new(
            Code::UnknownHost,
            format!("this server does not answer to the name `{host}`"),
            "use its IP address or its advertised name, start it with --allow-host HOST, or set a \
             password",
        )
    } else {
        let looks = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        if looks || is_own(request.headers(), host) {
            return next.run(request).await;
        }
        ApiError::new(
            Code::OtherOrigin,
            "the request came from a web page of another site",
            "send it from a program, or from a page of this server; those send no Origin header, \
             or this server's",
        )
    };
    super::refuse::refuse(request, failure).await
}

/// How many characters of a host are repeated in an error.
const HOST_SHOWN_MAX: usize = 100;

/// The requested host; HTTP/2 has it in the URI.
fn host<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    let host = headers.get(HOST).map(|host| host.to_str().unwrap_or_default());
    host.or_else(|| uri.authority().map(Authority::as_str))
}

/// Whether a request comes from no page at all, or from one of this server's.
fn is_own(headers: &HeaderMap, host: Option<&str>) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let page = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    page.zip(host).is_some_and(|((_, page), host)| page.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_names_and_addresses_are_allowed() {
        let hosts = Hosts::these(["Node-1.example".to_owned()]);
        for good in [
            "localhost",
            "LOCALHOST:7400",
            "a.localhost",
            "127.0.0.1:7400",
            "10.1.2.3",
            "[::1]:7400",
            "[::1]",
            "node-1.example:7400",
            "NODE-1.example.",
        ] {
            assert!(hosts.allows(good), "{good}");
        }
        for bad in ["evil.example", "evil.example:7400", "localhost.evil.example", "", ":7400"] {
            assert!(!hosts.allows(bad), "{bad}");
        }
        assert!(Hosts::Any.allows("evil.example"));
    }
}
