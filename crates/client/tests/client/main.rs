//! The client against a real server, in this process.
#![allow(clippy::unwrap_used, reason = "a test stops where it can't go on")]

#[path = "../support/server.rs"]
mod server;

mod locks;

use std::time::Duration;

/// Nothing here takes so long unless it is broken.
const LONG: Duration = Duration::from_secs(30);
