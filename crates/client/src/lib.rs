//! The Rust client of Holdfast.
//!
//! A [`Client`] keeps a session with a Holdfast cluster, through whichever of its servers answers.
//! A lock that is taken with it is kept alive in the background, and carries the fencing token
//! that protected resources compare.
//!
//! ```no_run
//! use holdfast_client::Client;
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), holdfast_client::Error> {
//! let client = Client::connect(["http://127.0.0.1:7400"]).await?;
//! let guard = client.lock("seat-12A").wait(Duration::from_secs(30)).acquire().await?;
//! println!("token {}", guard.token());
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The story of one acquire: [`Lock::acquire`] gives it to the task of the session (`link.rs`),
//! which numbers it and sends it over its stream. If the server goes away, the task attaches the
//! session to a stream of another server and sends it again under the same number: it has one
//! effect. When the grant comes, a [`Guard`] is made of it. Until when its lease is surely good,
//! `lease.rs` says.

pub mod blocking;
mod calls;
mod client;
mod clock;
mod election;
mod error;
mod guard;
mod lease;
mod link;
mod lock;
mod register;
mod watch;

pub use client::{Builder, Client};
pub use election::{Election, Leader, Observer};
pub use error::{Error, How};
pub use guard::{Ending, Guard};
pub use link::{Health, Revocation};
pub use lock::Lock;
pub use register::{Fence, Register};
pub use watch::{Event, Watch};
