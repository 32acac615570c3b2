//! Sessions and calls, served by HTTP's listener.

mod session;
mod unary;

use crate::doors::Context;
use holdfast_proto::v1::holdfast_server::{HoldfastServer, SERVICE_NAME};

/// The longest message, in bytes.
const MESSAGE_BYTES_MAX: usize = 512 << 10;

/// Implements the gRPC service.
#[derive(Clone)]
pub(crate) struct Calls {
    context: Context,
}

/// The routes of gRPC, to be merged with those of HTTP.
pub(crate) fn router(context: Context) -> axum::Router {
    let calls = HoldfastServer::new(Calls { context }).max_decoding_message_size(MESSAGE_BYTES_MAX);
    axum::Router::new().route_service(&format!("/{SERVICE_NAME}/{{*call}}"), calls)
}
