//! The Rust client of Holdfast.
//!
//! A [`Client`] keeps a session with a Holdfast cluster, through whichever of its servers answers.
//! A lock that is taken with it is kept alive in the background, and carries the fencing token
//! that protected resources compare.
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
//! # fn main() { with_server(async |servers| {
//! // For instance ["http://10.0.0.1:7400", "http://10.0.0.2:7400"].
//! let client = Client::connect(servers).await?;
//! let guard = client.lock("seat-12A").wait(Duration::from_secs(30)).acquire().await?;
//! println!("token {}", guard.token());
//! guard.release().await?;
//! # Ok(()) }) }
//! ```
//!
//! `docs/client.md` is the guide. For programs that are not asynchronous there is [`blocking`].
//!
//! The story of one acquire: [`Lock::acquire`] gives it to the task of the session (`link/`),
//! which runs on a thread of the client's own (`driver.rs`), numbers it and sends it over its
//! stream. If the server goes away, the task attaches the session to a stream of another server and
//! sends it again under the same number: it has one effect. When the grant comes, a [`Guard`] is
//! made of it. Until when its lease is surely good, `lease.rs` says.

pub mod blocking;
mod builder;
mod calls;
mod client;
mod clock;
mod code;
mod detached;
mod driver;
mod election;
mod error;
mod events;
mod fate;
mod gate;
mod guard;
mod hold;
mod lease;
mod link;
mod lock;
mod reentry;
mod register;
mod servers;
mod timer;
mod token;
mod watch;

pub use builder::Builder;
pub use client::Client;
pub use code::ErrorCode;
pub use detached::Detached;
pub use election::{Election, Leader, Leadership, Observer};
pub use error::{Error, How};
pub use events::{Events, News};
pub use fate::{Health, Revocation};
pub use guard::Guard;
pub use hold::Ending;
pub use lock::Lock;
pub use register::{Fence, Register};
pub use servers::IntoServers;
pub use token::Token;
pub use watch::{Event, Watch};
