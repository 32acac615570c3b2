//! Holdfast's gRPC protocol, made from `proto/holdfast/v1/holdfast.proto`: read that file, it is
//! the documentation.

/// What all messages have: their length, and how they are written and read.
pub use prost::Message;

/// Version 1.
#[allow(missing_docs, clippy::all, unreachable_pub, reason = "made by a program")]
pub mod v1 {
    tonic::include_proto!("holdfast.v1");
}
