//! gRPC: sessions, each with a stream, and unary calls. It has no listener of its own: HTTP serves
//! its paths. Its codec is tonic's, with the messages of `crates/proto`; `crates/grpc` translates.

mod serve;

pub(super) use serve::router;

use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use holdfast_gateway::ApiError;
use holdfast_proto::v1::holdfast_server::SERVICE_NAME;
use tonic::Status;

/// Whether a request is gRPC.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let content = headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    content.is_some_and(|content| content.starts_with(b"application/grpc"))
}

/// Whether a path is that of a session's stream, which may stay open indefinitely.
pub(crate) fn is_session(path: &str) -> bool {
    let call = path.strip_prefix('/').and_then(|path| path.strip_prefix(SERVICE_NAME));
    call == Some("/Session")
}

/// An error as the status of a call.
pub(crate) fn status(error: ApiError) -> Status {
    let (code, message) = holdfast_grpc::status(error);
    Status::new(tonic::Code::from(code), message)
}

/// Converts errors to gRPC statuses.
trait OrStatus<T> {
    fn or_status(self) -> Result<T, Status>;
}

impl<T, E: Into<ApiError>> OrStatus<T> for Result<T, E> {
    fn or_status(self) -> Result<T, Status> {
        self.map_err(|error| status(error.into()))
    }
}
