//! Fences: the half of a lock that lives at the resource.
//!
//! A holder can be paused right after it has checked its lock, sleep through its lease, and resume
//! in the belief that it still holds the lock. No lock service can prevent that. The resource can:
//! it remembers the highest token it has seen, and refuses lower ones.
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
//! // 34's lease expires. The new holder raises the fence before it relies on what it reads.
//! let found = fence.raise("ledger", new).await?;
//! assert_eq!(found.value.as_deref(), Some(&b"balance 50"[..]));
//!
//! // 34 resumes.
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
//! Each store is a module behind a feature: `sqlite`, `postgres`, `object` (feature `object-store`:
//! S3, GCS, Azure, local disk), `http` (a tower layer in front of a service, and the header) and
//! `register` (feature `holdfast`: the register inside Holdfast). `docs/fencing.md` is the guide.
//!
//! The story of one write: the store takes its own lock on the resource, or reads the current
//! version; [`Highest::admit`], or an SQL statement equivalent to it, decides; value and numbers
//! are written in one step, on the condition that nothing has changed since. If the reply is lost,
//! the store finds out whether the write took effect, or says that it can't.

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
#[cfg_attr(not(feature = "http"), allow(dead_code, reason = "PostgreSQL needs less than HTTP"))]
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

/// The future of a [`Fence`]'s methods, boxed so that the trait can be used as `dyn Fence`.
pub type FenceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// The longest name of a resource: the same as for a lock.
pub const RESOURCE_BYTES_MAX: usize = 512;

/// What a fence keeps for one resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fenced {
    /// The highest tokens seen.
    pub highest: Highest,
    /// The value; `None` if nothing was written yet.
    pub value: Option<Bytes>,
}

/// A store that refuses writes from holders that have been superseded.
///
/// When a call returns `Ok`, its effect is durable. After any error but [`Error::Unknown`], it had
/// none. Repeating a call with the same token is safe: the token passes until a later holder has
/// shown its own.
///
/// Any future may be dropped; whether its call took effect is then unknown. It never takes effect
/// after a later raise or write of the same resource has returned.
pub trait Fence: Send + Sync {
    /// Shows the token, and returns what is stored.
    ///
    /// A new holder does this *before* it relies on anything it reads: from then on, no earlier
    /// holder can write.
    fn raise<'a>(&'a self, resource: &'a str, token: Token) -> FenceFuture<'a, Fenced>;

    /// Replaces the value, unless a later holder has shown its token.
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
