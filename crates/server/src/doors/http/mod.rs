//! HTTP with JSON, for curl and every language; gRPC is served on the same port.

mod codec;
pub(super) mod serve;
pub(super) mod translate;

use super::Door;
use crate::tls::Accepting;

pub(super) const DOOR: Door = Door {
    name: "http",
    clients: "HTTP and gRPC clients",
    port_above: 0,
    setting: None,
    shown_as: "http://",
    shown_as_tls: "https://",
    examples: &[
        "curl -s http://127.0.0.1:{port}/v1/grab_lock -d '{\"name\":\"seat-12A\",\"ttl_ms\":15000}'",
        "curl -s 'http://127.0.0.1:{port}/v1/lock?name=seat-12A'",
        "curl -s http://127.0.0.1:{port}/v1/status",
    ],
    tls_examples: &[
        "curl -s --cacert {ca} https://127.0.0.1:{port}/v1/grab_lock \
         -d '{\"name\":\"seat-12A\",\"ttl_ms\":15000}'",
        "holdfast show seat-12A --server https://127.0.0.1:{port} --ca {ca}",
    ],
    accepting: Accepting::Http,
    needs_tls: b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n\
        Content-Length: 79\r\n\r\n{\"code\":\"bad_request\",\"message\":\"this port requires TLS\",\"hint\":\"use https://\"}",
    serve: |opening| Box::pin(serve::serve(opening)),
};
