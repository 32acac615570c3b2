//! HTTP with JSON, for curl and every language; gRPC is served on the same port.

mod codec;
pub(super) mod serve;
pub(super) mod translate;

use super::Door;

pub(super) const DOOR: Door = Door {
    name: "http",
    clients: "HTTP and gRPC clients",
    port_above: 0,
    setting: None,
    shown_as: "http://",
    examples: &[
        "curl -s http://127.0.0.1:{port}/v1/grab_lock -d '{\"name\":\"seat-12A\",\"ttl_ms\":15000}'",
        "curl -s 'http://127.0.0.1:{port}/v1/lock?name=seat-12A'",
        "curl -s http://127.0.0.1:{port}/v1/status",
    ],
    serve: |opening| Box::pin(serve::serve(opening)),
};
