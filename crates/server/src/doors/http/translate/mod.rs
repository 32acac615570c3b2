//! Frames to requests, replies to frames: pure.

pub(super) mod error_response;
pub(super) mod fields;
pub(super) mod show;
