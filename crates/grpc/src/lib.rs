//! The gRPC door without its sockets: pure, so that the server drives it with tonic and the simulator
//! with virtual connections.
//!
//! The story of one acquire over a session's stream. [`session::begin`] says what the first message
//! asks for, an open or an attach; [`session::Begin::begun`] makes the first messages of what came of
//! that. From then on [`session::receive`] turns each message into something for the gateway, and
//! [`session::Outgoing`] turns each event of the gateway into a message. `translate` has the fields.
//!
//! It draws nothing at random: whoever drives it brings the secrets of new sessions and tickets.

pub mod session;
pub mod translate;

use holdfast_gateway::ApiError;

/// An error as the status of a call: gRPC's number and the message, `code: message (hint)`.
pub fn status(error: ApiError) -> (i32, String) {
    let ApiError { code, message, hint, .. } = error;
    (code.grpc_status() as i32, format!("{}: {message} ({hint})", code.as_str()))
}
