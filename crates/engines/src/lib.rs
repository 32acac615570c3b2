//! One lock API for the engines people already run.
//!
//! ```
//! # #[tokio::main] async fn main() -> Result<(), holdfast_locks::Error> {
//! use holdfast_locks::Locks;
//! use std::time::Duration;
//!
//! // Or "redis://127.0.0.1:6379", "etcd://127.0.0.1:2379", "postgres://ana@db/app", ...
//! let locks = Locks::connect("memory:").await?;
//! let guard = locks.lock("seat-12A").wait(Duration::from_secs(30)).acquire().await?;
//! if let Some(token) = guard.token() {
//!     println!("send token {token} with every write");
//! }
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! The URL selects the engine, and moving to another one changes nothing else. What differs is what
//! an engine can promise: [`Locks::promises`] returns it as data, `docs/engines.md` has it as a
//! table.
//!
//! The story of one acquire: [`Lock::acquire`] checks its arguments and hands a request to a task
//! on the library's own threads (`runtime.rs`), so that dropping the future can't leave anything
//! half done. The engine's driver (`drivers/`) takes the lock or waits for it. A keeper
//! (`keeper.rs`) then renews the lease, tracks until when it is certainly valid, and ends it.

pub mod blocking;
mod clock;
mod driver;
mod drivers;
mod error;
mod guard;
mod keeper;
mod locks;
mod promises;
mod runtime;
mod token;
mod url;

/// Runs the examples in the page as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/engines.md")]
struct EnginesPage;

pub use error::Error;
pub use guard::{Ending, Guard, Lease, LeaseRef, Lost};
pub use locks::{Builder, Inspection, Lock, Locks};
pub use promises::{Promise, Promises};
pub use token::Token;
