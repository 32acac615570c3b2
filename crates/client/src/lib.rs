//! The Rust client of Holdfast.
//!
//! A [`Client`] keeps a session with a Holdfast cluster, through any server that answers.
//! A lock that it acquires is kept alive in the background, and has a fencing token for the
//! protected resource to compare.
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
//! `docs/client.md` is the guide. Programs that are not asynchronous use [`blocking`].
//!
//! The path of one acquire: [`Lock::acquire`] sends it to the session's driver (`driver/`), a task
//! on a thread of the client's own (`runtime.rs`). The driver passes it to the session's state
//! machine (`session/`), which makes all decisions: it numbers the request and has the driver send
//! it over its stream. If the server fails, it has the session attached to a stream of another
//! server, and the request sent again under the same number, so that it has one effect. When the
//! grant arrives, the driver turns it into a [`Guard`]. `session/lease.rs` computes how long its
//! lease is certain to last.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "only `session` is pure")]

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
mod gate;
mod guard;
mod guard_state;
mod held_ticket;
mod lock;
mod reentry;
mod register;
mod runtime;
mod servers;
#[doc(hidden)]
pub mod session;
mod status;
mod timer;
mod token;
mod watch;

pub use builder::Builder;
pub use client::Client;
pub use code::ErrorCode;
pub use detached::Detached;
pub use election::{Election, Leader, Leadership, Observer};
pub use error::{EndReason, Error};
pub use events::{Events, GuardEvent};
pub use guard::Guard;
pub use guard_state::{Health, Revocation};
pub use held_ticket::Ending;
pub use lock::Lock;
pub use register::{Fence, Register};
pub use servers::IntoServers;
pub use token::Token;
pub use watch::{Event, Watch};
