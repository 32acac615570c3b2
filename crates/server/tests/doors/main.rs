//! The doors of a real server, in this process: what works, what is refused, and how.
//!
//! No test but one asserts a time: whatever should happen, happens within [`support::TIMEOUT`].
#![allow(clippy::unwrap_used, reason = "a test stops where it can't go on")]

mod bad_input;
mod http;
mod redis;
mod support;
mod tls;
mod users;
mod zookeeper;
