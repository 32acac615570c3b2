//! HTTP against a real server, in this process: what works, what is refused, and how.
//!
//! No test asserts a time but one: what should happen, happens within [`support::PATIENCE`].
#![allow(clippy::unwrap_used, reason = "a test stops where it can't go on")]

mod support;

mod bad_input;
mod calls;
mod described;
mod election;
mod measured;
mod names;
mod origins;
mod passwords;
mod requests;
mod same_answers;
mod secrets;
mod slow;
mod streams;
mod waits;
