//! Errors in Redis's own wording, because clients match on it.

use bytes::Bytes;
use holdfast_core::{BadText, Refusal};
use holdfast_gateway::Code;
use std::fmt;

/// An error reply: an upper-case code, a space, and what is wrong.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Bytes);

impl Error {
    /// The key holds another type than the command is for.
    pub const WRONG_TYPE: Self =
        Self::fixed("WRONGTYPE Operation against a key holding the wrong kind of value");
    /// The token of a lock that is set in the same transaction.
    pub const NOT_DRAWN_YET: Self = Self::fixed(
        "ERR the token of a key that is set in the same transaction or script is drawn when that is \
         applied: ask for it afterwards",
    );
    /// Options that are unknown or don't go together.
    pub const SYNTAX: Self = Self::fixed("ERR syntax error");
    /// An argument that is not an integer.
    pub const NOT_AN_INTEGER: Self = Self::fixed("ERR value is not an integer or out of range");
    /// A counter that would overflow.
    pub const OVERFLOW: Self = Self::fixed("ERR increment or decrement would overflow");
    /// `EVALSHA` of a script that has not been loaded on this node.
    pub const NO_SCRIPT: Self = Self::fixed("NOSCRIPT No matching script. Please use EVAL.");
    /// The client must authenticate first.
    pub const NO_AUTH: Self = Self::fixed("NOAUTH Authentication required.");
    /// The password is wrong.
    pub const WRONG_PASSWORD: Self =
        Self::fixed("WRONGPASS invalid username-password pair or user is disabled.");

    /// An error with a constant text.
    pub const fn fixed(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// An error from a complete text, including its code.
    pub fn new(text: impl Into<Bytes>) -> Self {
        Self(text.into())
    }

    /// An error with the code `ERR`.
    pub fn err(text: impl fmt::Display) -> Self {
        Self(Bytes::from(format!("ERR {text}")))
    }

    /// Too few or too many arguments.
    pub fn arity(command: impl fmt::Display) -> Self {
        Self::err(format_args!("wrong number of arguments for '{command}' command"))
    }

    /// An invalid expiry time.
    pub fn expire_time(command: &str) -> Self {
        Self::err(format_args!("invalid expire time in '{command}' command"))
    }

    /// An unknown command. Shows up to 128 bytes of the name and of all arguments, each up to its
    /// first zero byte, as Redis does.
    pub fn unknown_command(name: &[u8], arguments: &[Bytes]) -> Self {
        const SHOWN_MAX: usize = 128;
        let shown = |bytes: &[u8], room: usize| -> Vec<u8> {
            bytes.iter().copied().take(room).take_while(|byte| *byte != 0).collect()
        };
        let mut text = b"ERR unknown command '".to_vec();
        text.extend(shown(name, SHOWN_MAX));
        text.extend_from_slice(b"', with args beginning with: ");
        let mut all = Vec::new();
        for argument in arguments {
            let room = SHOWN_MAX.saturating_sub(all.len());
            if room == 0 {
                break;
            }
            all.push(b'\'');
            all.extend(shown(argument, room));
            all.extend_from_slice(b"' ");
        }
        text.extend_from_slice(&all);
        Self(Bytes::from(text))
    }

    /// An unknown subcommand.
    pub fn unknown_subcommand(command: &str, name: &[u8]) -> Self {
        const SHOWN_MAX: usize = 128;
        let shown = String::from_utf8_lossy(name.get(..SHOWN_MAX).unwrap_or(name)).into_owned();
        let command = command.to_uppercase();
        Self::err(format_args!("unknown subcommand '{shown}'. Try {command} HELP."))
    }

    /// A key, value, field or channel that is too long, or an empty key.
    pub fn bad_text(what: &str, bad: BadText) -> Self {
        Self::err(format_args!("{what} can't be used here: {bad}"))
    }

    /// The core's refusal.
    pub fn refused(refusal: &Refusal) -> Self {
        match Code::of(refusal) {
            Code::InUse => Self::WRONG_TYPE,
            Code::NotAcquired => Self(Bytes::from(format!("HELD {refusal}"))),
            code => Self(Bytes::from(format!("{} {refusal}", code.resp_word()))),
        }
    }

    /// The complete text, including its code.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl std::error::Error for Error {}
