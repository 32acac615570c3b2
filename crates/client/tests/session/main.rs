//! The session's state machine, without servers and without a clock.
#![allow(clippy::unwrap_used, reason = "a test stops where it can't go on")]
#![allow(clippy::disallowed_methods, reason = "a test reads files")]

mod play;
mod random;
mod server;
mod show;
mod transcripts;
