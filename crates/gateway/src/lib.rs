//! What stands between the doors and the node, without any I/O.
//!
//! A door turns frames into the native requests of [`request`], which validates each of them once and
//! holds every bound, and turns what comes back, an answer of the core or an [`ApiError`], into frames
//! again. Nothing here knows of a particular door, except the table of [`Code`], which has a column
//! for each protocol.

mod error;
pub mod request;

pub use error::{ApiError, Code, GrpcStatus, SubmitError};
