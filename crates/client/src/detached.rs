//! A held lock without a guard.

use crate::token::Token;
use bytes::Bytes;
use std::fmt;

/// A lock that was detached from its guard and is still held, with what is needed to renew or
/// release it over HTTP or gRPC. See [`Guard::detach`](crate::Guard::detach).
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// # let client = Client::connect(&servers).await?;
/// let guard = client.lock("seat-12A").ttl(Duration::from_secs(60)).acquire().await?;
/// let token = guard.token();
/// let detached = guard.detach().await.map_err(|(_guard, error)| error)?;
/// assert_eq!((&detached.name[..], detached.token), (&b"seat-12A"[..], token));
/// # Ok(()) }) }
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Detached {
    /// The name; for a lock with several names, the first in byte order.
    pub name: Bytes,
    /// The fencing token.
    pub token: Token,
    /// Proves that a request comes from the holder.
    pub secret: Bytes,
}

impl fmt::Debug for Detached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without its secret.
        f.debug_struct("Detached")
            .field("name", &self.name)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
