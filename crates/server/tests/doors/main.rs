//! The doors of a real server, in this process: what works, what is refused, and how.
//!
//! No test asserts a time but one: what should happen, happens within [`support::PATIENCE`].
#![allow(clippy::unwrap_used, reason = "a test stops where it can't go on")]

mod bad_input;
mod http;
mod redis;
mod support;
