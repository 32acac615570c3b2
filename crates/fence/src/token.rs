//! A fencing token with its mode, and its text form.

use crate::error::with_hint;
use std::fmt;
use std::str::FromStr;

/// The highest number that a token may have: what fits into a `BIGINT`.
pub const TOKEN_MAX: u64 = i64::MAX as u64;

/// How the lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// By one holder alone.
    Exclusive,
    /// By any number of readers.
    Shared,
}

/// A fencing token: the number of a grant, and its mode.
///
/// It may come from any lock whose numbers rise with each holder. In text form it is `35` or
/// `35;shared`.
///
/// ```
/// use holdfast_fence::{InvalidToken, Mode, Token};
///
/// let token = Token::exclusive(35)?;
/// assert_eq!((token.number(), token.mode()), (35, Mode::Exclusive));
/// assert_eq!("35;shared".parse(), Token::shared(35));
///
/// // Some locks have no tokens; their holders can't be fenced.
/// let from_a_lock: Option<u64> = None;
/// assert_eq!(Token::exclusive(from_a_lock), Err(InvalidToken::Missing));
/// # Ok::<(), InvalidToken>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    number: u64,
    mode: Mode,
}

impl Token {
    /// The token of an exclusive holder, from a number or from a lock that may have none.
    pub fn exclusive(number: impl Into<Option<u64>>) -> Result<Self, InvalidToken> {
        Self::new(number.into(), Mode::Exclusive)
    }

    /// The token of a reader that holds the lock together with others.
    pub fn shared(number: impl Into<Option<u64>>) -> Result<Self, InvalidToken> {
        Self::new(number.into(), Mode::Shared)
    }

    fn new(number: Option<u64>, mode: Mode) -> Result<Self, InvalidToken> {
        match number {
            None => Err(InvalidToken::Missing),
            Some(number @ 1..=TOKEN_MAX) => Ok(Self { number, mode }),
            Some(number) => Err(InvalidToken::OutOfRange(number)),
        }
    }

    /// The number that a fence compares; from 1 to [`TOKEN_MAX`].
    pub fn number(self) -> u64 {
        self.number
    }

    /// How the lock is held.
    pub fn mode(self) -> Mode {
        self.mode
    }

    /// The number as an SQL integer.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn bigint(self) -> i64 {
        i64::try_from(self.number).unwrap_or(i64::MAX)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode {
            Mode::Exclusive => write!(f, "{}", self.number),
            Mode::Shared => write!(f, "{};shared", self.number),
        }
    }
}

impl FromStr for Token {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        let (number, mode) = match text.trim().split_once(';') {
            None => (text.trim(), Mode::Exclusive),
            Some((number, mode)) => match mode.trim() {
                "shared" => (number.trim_end(), Mode::Shared),
                "exclusive" => (number.trim_end(), Mode::Exclusive),
                mode if mode == "permit" || mode.starts_with("permit ") => {
                    return Err(InvalidToken::Permit);
                }
                _ => return Err(InvalidToken::NotANumber(excerpt(text))),
            },
        };
        // `parse` alone would accept "+35".
        let digits = number.bytes().all(|byte| byte.is_ascii_digit());
        match number.parse() {
            Ok(number) if digits => Self::new(Some(number), mode),
            _ => Err(InvalidToken::NotANumber(excerpt(text))),
        }
    }
}

/// Limits what an error message quotes.
fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Why something is not a fencing token.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidToken {
    /// There is no token: the lock does not have any.
    Missing,
    /// The text is not a token.
    NotANumber(String),
    /// The number is 0, or above [`TOKEN_MAX`].
    OutOfRange(u64),
    /// It is the token of a permit, and several permits are held at once.
    Permit,
    /// It is not the token of the guard that the fence was created for.
    OfAnotherGuard {
        /// The token that was shown.
        shown: Token,
        /// The guard's token.
        own: Token,
    },
}

impl InvalidToken {
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Missing => "the holder has no fencing token".into(),
            Self::NotANumber(text) => format!("invalid fencing token {text:?}"),
            Self::OutOfRange(number) => format!("invalid fencing token {number}"),
            Self::Permit => "permits can't be fenced: several are held at once".into(),
            Self::OfAnotherGuard { shown, own } => format!(
                "token {shown} does not belong to the guard of this fence, which has token {own}"
            ),
        }
    }

    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Missing => "use a lock that has tokens",
            // TOKEN_MAX
            Self::NotANumber(_) | Self::OutOfRange(_) => {
                "a token is a number from 1 to 9223372036854775807, followed by ;shared if the lock \
                 is shared"
            }
            Self::Permit => "use an exclusive or shared lock",
            Self::OfAnotherGuard { .. } => "create a fence for each guard",
        }
    }
}

impl fmt::Display for InvalidToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_hint(f, &self.message(), self.hint())
    }
}

impl std::error::Error for InvalidToken {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tokens_survive_a_round_trip(number in 1..=TOKEN_MAX, shared: bool) {
            let token = if shared { Token::shared(number) } else { Token::exclusive(number) };
            prop_assert_eq!(token.as_ref().unwrap().to_string().parse(), token);
        }

        #[test]
        fn arbitrary_text_never_panics(text in "\\PC*") {
            if let Ok(token) = text.parse::<Token>() {
                prop_assert!((1..=TOKEN_MAX).contains(&token.number()));
            }
        }
    }

    #[test]
    fn invalid_tokens_are_quoted() {
        for (text, why) in [
            ("", InvalidToken::NotANumber(String::new())),
            (" ;shared", InvalidToken::NotANumber(" ;shared".into())),
            ("0", InvalidToken::OutOfRange(0)),
            ("9223372036854775808", InvalidToken::OutOfRange(TOKEN_MAX + 1)),
            ("99999999999999999999", InvalidToken::NotANumber("99999999999999999999".into())),
            ("+35", InvalidToken::NotANumber("+35".into())),
            ("-1", InvalidToken::NotANumber("-1".into())),
            ("3.5", InvalidToken::NotANumber("3.5".into())),
            ("35;owner", InvalidToken::NotANumber("35;owner".into())),
            ("35;permit", InvalidToken::Permit),
        ] {
            assert_eq!(text.parse::<Token>(), Err(why), "{text:?}");
        }
        assert!(InvalidToken::OutOfRange(0).hint().contains(&format!("from 1 to {TOKEN_MAX}")));
        assert_eq!(" 35 ; shared ".parse(), Token::shared(35));
        assert_eq!("35;exclusive".parse(), Token::exclusive(35));
    }
}
