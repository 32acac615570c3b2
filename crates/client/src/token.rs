//! Fencing tokens.

use std::fmt;

/// A fencing token: the number of a ticket. It is greater than the token of every conflicting
/// earlier holder of the lock. Send it with every write, and have the resource refuse a token lower
/// than the highest it has seen.
///
/// ```
/// use holdfast_client::Token;
///
/// let (earlier, later) = (Token::new(7), Token::new(8));
/// assert!(later > earlier);
/// assert_eq!(later.get(), 8);
/// assert_eq!(later.to_string(), "8");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Token(u64);

impl Token {
    /// From a number, for instance from an environment variable.
    pub const fn new(token: u64) -> Self {
        Self(token)
    }

    /// The number. It is below 2^53, so it is exact in JSON.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.0
    }
}

impl From<u64> for Token {
    fn from(token: u64) -> Self {
        Self(token)
    }
}
