//! The command line as people and scripts use it: real processes against real servers.
//!
//! No test but one asserts a time: what should happen, happens within [`support::TIMEOUT`].

#[allow(dead_code, unused_imports, reason = "shared with the tests of processes")]
#[path = "../processes/support/mod.rs"]
mod support;

mod cli;

mod attack;
mod bench;
mod examples;
mod guide;
mod keep;
mod lease;
mod look;
mod nested;
mod operate;
mod signal_pairs;
mod stderr;
mod wrapper;
