//! What browsers send: which pages may use this server, and under which names.
//!
//! A browser lets any page send a POST to this server, and says whose page it is (`Origin`). And a
//! site can let its own name point to this machine (DNS rebinding): its page then counts as one of
//! this server, unless the server knows the names that it has (`Host`).

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware::Next;
use axum::response::Response;
use holdfast_gateway::{ApiError, Code};
use std::net::IpAddr;
use std::sync::Arc;

/// The names under which this server may be addressed.
#[derive(Debug, Clone)]
pub(crate) enum Hosts {
    /// Any: a password is needed, and no page of another site knows it.
    Any,
    /// IP addresses, loopback's names, and these, in lower case.
    These(Arc<[String]>),
}

impl Hosts {
    pub(crate) fn these(hosts: impl IntoIterator<Item = String>) -> Self {
        Self::These(hosts.into_iter().map(|host| plain(&host)).collect())
    }

    /// Whether a request for this host, with or without a port, is meant for this server. A site
    /// can't make a browser send an IP address or a loopback name of its own.
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

/// Names differ neither by case nor by the dot of the root.
fn plain(host: &str) -> String {
    let host = host.trim();
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// Without the port.
fn host_only(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Lets through what is addressed to this server and what no browser sent, what its user's own page
/// sent, and what only looks: a page of another site can't read the answer.
pub(crate) async fn check(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    let host = host(request.headers(), request.uri());
    // What names no host comes from no browser.
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
            "a web page of another site sent this",
            "send it from a program, or from a page of this server; those send no Origin header, \
             or this server's",
        )
    };
    super::refuse::refuse(request, failure).await
}

/// How much of a host is repeated in an error.
const HOST_SHOWN_MAX: usize = 100;

/// HTTP/2 names the host in the address.
fn host<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    let host = headers.get(HOST).map(|host| host.to_str().unwrap_or_default());
    host.or_else(|| uri.authority().map(Authority::as_str))
}

/// Whether what was sent comes from no page, or from one of this server.
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
