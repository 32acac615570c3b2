//! Sessions and calls, behind HTTP's socket loop.

mod session;
mod unary;

use crate::doors::Context;
use holdfast_proto::v1::holdfast_server::{HoldfastServer, SERVICE_NAME};

/// The longest message.
const MESSAGE_BYTES_MAX: usize = 512 << 10;

/// Answers gRPC's calls.
#[derive(Clone)]
pub(crate) struct Calls {
    context: Context,
}

/// The paths of gRPC, to be served beside those of HTTP.
pub(crate) fn router(context: Context) -> axum::Router {
    let calls = HoldfastServer::new(Calls { context }).max_decoding_message_size(MESSAGE_BYTES_MAX);
    axum::Router::new().route_service(&format!("/{SERVICE_NAME}/{{*call}}"), calls)
}
