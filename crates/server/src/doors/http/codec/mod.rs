//! Bytes to frames and back: JSON bodies, percent-encoded queries, and names as text. HTTP itself
//! is left to hyper.

pub(super) mod json;
pub(super) mod query;
pub(super) mod text;
