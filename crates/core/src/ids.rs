//! Numbers that must not be mixed up, each with its own type.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU64;

/// A due time that never comes.
pub(crate) const NEVER_MS: u64 = u64::MAX;

/// The number of a ticket; once the ticket is served, its fencing token. Drawn from one counter
/// that never goes back. It orders holders; it is not a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A session's id, assigned by the core when it is opened and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(pub NonZeroU64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A request's number within its session; the client counts up from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub NonZeroU64);

impl RequestId {
    /// The first request of a session.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// The id with this number; `None` for 0.
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The Raft term of an entry. An expiry decided in one term is refused in any other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Term(pub u64);

/// 128 random bits drawn outside the core: prove that a request comes from the ticket's or
/// session's owner.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Secret(pub [u8; 16]);

/// Compares in constant time: the time of a reply must not reveal how many bytes were right.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        let differing = self.0.iter().zip(other.0).fold(0, |seen, (a, b)| seen | (a ^ b));
        differing == 0
    }
}

impl Eq for Secret {}

/// Keeps secrets out of logs.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
