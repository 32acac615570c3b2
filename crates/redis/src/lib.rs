//! The Redis door of Holdfast, without its sockets.
//!
//! Everything here is pure: bytes, keys as they were read and the wall clock come in; replies and
//! one [`Transaction`](holdfast_core::Transaction) go out. Whoever has the sockets and the state
//! does what a [`Plan`](client::Plan) says.
//!
//! The story of one request:
//!
//! 1. [`resp::Decoder`] takes it from the bytes that came in, within [`resp::Bounds`].
//! 2. [`client::Client`] knows the connection: its protocol, database, password, transaction and
//!    subscriptions. What is about these it answers itself; the rest becomes a [`run::Job`].
//! 3. [`run::Job::run`] does it with the keys in [`run::Seen`], as if they were the whole
//!    database. If a key is missing, it says which; it is fetched, and the job runs again from its
//!    beginning.
//! 4. What it wrote is one transaction: the keys that it saw with their stamps, the keys that it
//!    wrote. The core applies it if nothing has changed meanwhile; else the job runs once more.
//!    So a job may run with keys that are a little old: if it writes, the core finds out. Only a
//!    job that writes nothing must have read the current state.
//!    [`JobTask`] does all this beside the state, as a task of the gateway.
//! 5. `HOLDFAST.ACQUIRE` alone is no transaction: [`acquiring::Acquiring`] stands in line.
//! 6. [`resp::encode`] writes the reply.
//!
//! A text is a lock: see `run/overlay.rs` for what each write comes to.

pub mod acquiring;
pub mod client;
pub mod command;
mod error;
pub mod lua;
pub mod messages;
mod number;
pub mod resp;
pub mod run;
mod task;

pub use error::Error;
pub use holdfast_gateway::glob;
pub use task::{JobOutcome, JobTask};
