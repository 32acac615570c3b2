//! The gateway in front of a real node, driven step by step: no sockets, no clock.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops where it can't go on")]

mod bench;
mod calls;
mod events;
mod sessions;
mod tasks;
mod waits;
