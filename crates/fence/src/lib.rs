//! Fences: the half of a lock that lives at the resource.
//!
//! A holder can be stopped after it has looked at its lock, sleep through its lease, and wake up
//! believing that it still holds it. No lock service can prevent that. What can is the resource: it
//! keeps the highest token it has seen, and refuses a lower one.
//!
//! Every fence of this crate is a [`Fence`]: a store that keeps a value and two numbers for each
//! resource, and checks the [`Token`] shown with each raise and write.
//!
//! ```
//! # #[cfg(feature = "sqlite")] {
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use holdfast_fence::{Error, Fence, Token, sqlite::Sqlite};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("ledger.db");
//! let fence = Sqlite::open(&path)?;
//! let (old, new) = (Token::exclusive(34)?, Token::exclusive(35)?);
//! fence.write("ledger", old, "balance 50".into()).await?;
//!
//! // 34's lease has expired. The new holder raises the fence before relying on what it reads.
//! let found = fence.raise("ledger", new).await?;
//! assert_eq!(found.value.as_deref(), Some(&b"balance 50"[..]));
//!
//! // 34 wakes up.
//! let refused = fence.write("ledger", old, "balance 40".into()).await.unwrap_err();
//! assert_eq!(
//!     refused.to_string(),
//!     "token 34 is refused for \"ledger\": a later holder has shown token 35. \
//!      Stop, and acquire the lock again"
//! );
//! fence.write("ledger", new, "balance 20".into()).await?;
//! # Ok::<(), Error>(()) }).unwrap(); }
//! ```
//!
//! The stores, each behind a feature: `sqlite`, `postgres`, `object` (feature `object-store`: S3, GCS,
//! Azure, local disk), `http` (a tower layer in front of a service, and the header) and `register`
//! (feature `holdfast`: the register inside Holdfast). `docs/fencing.md` is the guide.
//!
//! The decision is made by [`Highest::admit`], or by one SQL statement equivalent to it.

mod error;
mod highest;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "object-store")]
pub mod object;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "holdfast")]
pub mod register;
#[cfg(any(feature = "http", feature = "postgres"))]
mod resource_locks;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod token;

pub use error::{Error, Refused};
pub use highest::Highest;
pub use token::{InvalidToken, Mode, TOKEN_MAX, Token};

use bytes::Bytes;
use std::pin::Pin;

/// What a fence's methods return; boxed so that `dyn Fence` works.
pub type FenceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A resource's name may have this many bytes: as many as the name of a lock.
pub const RESOURCE_BYTES_MAX: usize = 512;

/// What a fence keeps for one resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fenced {
    /// The highest tokens seen.
    pub highest: Highest,
    /// What the last write left; `None` if nothing was written yet.
    pub value: Option<Bytes>,
}

/// A store that refuses writes from holders that have been superseded.
///
/// The numbers are durable when a call returns. Any future may be dropped; whether its call took
/// effect is then unknown. Calling again with the same token is safe: it passes until a later holder
/// has shown its own.
pub trait Fence: Send + Sync {
    /// Shows the token, and returns what is there.
    ///
    /// A new holder does this *before* it relies on anything it reads: from then on no earlier holder
    /// can write.
    fn raise<'a>(&'a self, resource: &'a str, token: Token) -> FenceFuture<'a, Fenced>;

    /// Writes, unless a later holder has shown its token.
    fn write<'a>(&'a self, resource: &'a str, token: Token, value: Bytes) -> FenceFuture<'a, ()>;

    /// Reads without a token: fine for display, not for deciding what to write.
    fn read<'a>(&'a self, resource: &'a str) -> FenceFuture<'a, Fenced>;
}

/// Rejects names that some store could not represent.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "object-store"))]
fn check_resource(resource: &str) -> Result<(), Error> {
    let why = match resource {
        "" => "it is empty",
        long if long.len() > RESOURCE_BYTES_MAX => "it is longer than 512 bytes",
        zero if zero.contains('\0') => "it contains a NUL character",
        _ => return Ok(()),
    };
    Err(Error::InvalidResource { resource: resource.into(), reason: why.into() })
}
