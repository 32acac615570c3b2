//! gRPC: sessions with a stream each, beside calls for one thing.

mod session;
mod translate;
mod unary;

use crate::api::Api;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use holdfast_gateway::ApiError;
use holdfast_proto::v1::holdfast_server::{HoldfastServer, SERVICE_NAME};
use tonic::Status;

/// The longest message.
const MESSAGE_BYTES_MAX: usize = 512 << 10;

/// Answers gRPC's calls.
#[derive(Clone)]
pub(crate) struct Door {
    api: Api,
}

/// The paths of gRPC, to be served beside those of HTTP.
pub(crate) fn router(api: Api) -> axum::Router {
    let door = HoldfastServer::new(Door { api }).max_decoding_message_size(MESSAGE_BYTES_MAX);
    axum::Router::new().route_service(&format!("/{SERVICE_NAME}/{{*call}}"), door)
}

/// Whether a request speaks gRPC.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let content = headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    content.is_some_and(|content| content.starts_with(b"application/grpc"))
}

/// Whether a path is that of a session's stream, which is open for as long as its client likes.
pub(crate) fn is_session(path: &str) -> bool {
    let call = path.strip_prefix('/').and_then(|path| path.strip_prefix(SERVICE_NAME));
    call == Some("/Session")
}

/// An error as the status of a call.
pub(crate) fn status(error: ApiError) -> Status {
    let ApiError { code, message, hint, .. } = error;
    Status::new(
        tonic::Code::from(code.grpc_status() as i32),
        format!("{}: {message} ({hint})", code.as_str()),
    )
}

/// Turns errors into statuses of calls.
trait OrStatus<T> {
    fn or_status(self) -> Result<T, Status>;
}

impl<T, E: Into<ApiError>> OrStatus<T> for Result<T, E> {
    fn or_status(self) -> Result<T, Status> {
        self.map_err(|error| status(error.into()))
    }
}
