//! The gRPC door without its sockets: pure, so that the server drives it with tonic and the simulator
//! with virtual connections.
//!
//! The path of one acquire over a session's stream: [`session::begin`] parses the first message,
//! which opens or attaches a session; [`session::Begin::begun`] makes the first reply messages from
//! the result. From then on, [`session::receive`] turns each message into a request for the
//! gateway, and [`session::Outgoing`] turns each event of the gateway into a message. `translate`
//! maps the fields.
//!
//! It draws no random numbers: the driver provides the secrets of new sessions and tickets.

pub mod session;
pub mod translate;

use holdfast_gateway::ApiError;

/// An error as the status of a call: the gRPC code and the message, `code: message (hint)`.
pub fn status(error: ApiError) -> (i32, String) {
    let ApiError { code, message, hint, .. } = error;
    (code.grpc_status() as i32, format!("{}: {message} ({hint})", code.as_str()))
}
