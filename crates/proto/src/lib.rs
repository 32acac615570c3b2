//! Holdfast's gRPC protocol, made from `proto/holdfast/v1/holdfast.proto`: read that file, it is
//! the documentation.

/// Version 1.
#[allow(missing_docs, clippy::all, unreachable_pub, reason = "made by a program")]
pub mod v1 {
    tonic::include_proto!("holdfast.v1");
}
