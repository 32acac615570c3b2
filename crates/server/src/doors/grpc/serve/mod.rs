//! Sessions and calls, served by HTTP's listener.

mod session;
mod unary;

use crate::doors::Context;
use axum::body::Body;
use axum::http::{Request, Response};
use holdfast_core::Door;
use holdfast_gateway::Caller;
use holdfast_proto::v1::holdfast_server::{HoldfastServer, SERVICE_NAME};
use std::convert::Infallible;
use std::task::{self, Poll};
use tonic::codegen::Service;

/// The longest message, in bytes.
const MESSAGE_BYTES_MAX: usize = 512 << 10;

/// Implements the gRPC service, on behalf of one caller.
#[derive(Clone)]
pub(crate) struct Calls {
    context: Context,
}

/// Serves each call on behalf of whoever makes it.
#[derive(Clone)]
struct ForCallers {
    context: Context,
}

impl Service<Request<Body>> for ForCallers {
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = <HoldfastServer<Calls> as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let caller = request.extensions().get::<Caller>().cloned();
        let caller = caller.unwrap_or_else(|| Caller::new(Door::Native, None));
        let calls = Calls { context: self.context.for_caller(caller) };
        HoldfastServer::new(calls).max_decoding_message_size(MESSAGE_BYTES_MAX).call(request)
    }
}

/// The routes of gRPC, to be merged with those of HTTP.
pub(crate) fn router(context: Context) -> axum::Router {
    let path = format!("/{SERVICE_NAME}/{{*call}}");
    axum::Router::new().route_service(&path, ForCallers { context })
}
