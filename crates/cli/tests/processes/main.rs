//! Holdfast as real processes: what a person who runs it would see.
//!
//! No test asserts a time but one: what should happen, happens within [`support::PATIENCE`].

mod support;

mod damage;
mod disk_full;
mod docs_http;
mod five_nodes;
mod graceful;
mod leader_kills;
mod members;
mod operations;
mod packaging;
mod readme;
mod settings;
mod stopped_leader;
mod strangers;
mod sync_error;
mod thousand_clients;
