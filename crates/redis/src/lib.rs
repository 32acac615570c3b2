//! The Redis door of Holdfast, without its sockets.
//!
//! Everything here is pure: bytes, keys as they were read and the wall clock come in; replies and
//! one [`Transaction`](holdfast_core::Transaction) go out. The server, which has the sockets and
//! the state, carries out each [`Plan`](client::Plan).
//!
//! The path of one request:
//!
//! 1. [`resp::Decoder`] takes it from the received bytes, within [`resp::Bounds`].
//! 2. [`client::Client`] is the connection's state: its protocol, database, password, transaction
//!    and subscriptions. It answers requests about these itself; the rest become a [`run::Job`].
//! 3. [`run::Job::run`] runs against the keys in [`run::ReadSet`], as if they were the whole database.
//!    If a key is missing, it returns which; the key is fetched, and the job runs again from the
//!    start.
//! 4. What it wrote is one transaction: the keys it saw with their stamps, and the keys it wrote.
//!    The core applies it if nothing has changed meanwhile; otherwise the job runs once more. So a
//!    job may run with slightly stale keys: if it writes, the core notices. Only a job that writes
//!    nothing must have read current state. [`JobTask`] does all this on the loop's thread, as a
//!    task of the gateway.
//! 5. Only `HOLDFAST.ACQUIRE` is not a transaction: [`acquiring::Acquiring`] waits in line.
//! 6. [`resp::encode`] writes the reply.
//!
//! A string key is a lock: see `run/overlay.rs` for what each write becomes.

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
