//! Every fence in the story it is made for: a holder that is stopped past its lease, wakes up, and
//! writes.
//!
//! Tests that need PostgreSQL, or take longer, are ignored here and run by `./test fences`.

#[path = "../../../client/tests/support/server.rs"]
mod server;
mod support {
    pub(crate) mod gate;
    pub(crate) mod holder;
    pub(crate) mod postgres;
    pub(crate) mod s3;
    pub(crate) mod service;
    pub(crate) mod store;
}

mod bad_input;
mod concurrent;
mod contended;
mod dropped;
mod guide;
mod http;
mod http_bodies;
mod layouts;
mod objects;
mod outcomes;
mod postgres;
mod random;
mod rules;
mod silent;
mod sqlite;
mod stopped;
mod tokens;
