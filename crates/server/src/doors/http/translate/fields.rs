//! The fields of bodies and queries, as they are written in JSON.

use crate::doors::http::codec::text;
use holdfast_core::{LockName, Secret, SessionRef};
use holdfast_gateway::ApiError;
use holdfast_gateway::request::{self, ModeKind};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt;

/// A whole number, given as a number or as a string of decimal digits: not every language has exact
/// 64-bit integers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WholeNumber(pub(crate) u64);

impl<'de> Deserialize<'de> for WholeNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = WholeNumber;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, or its decimal digits in a string")
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<WholeNumber, E> {
                Ok(WholeNumber(number))
            }
            fn visit_str<E: Error>(self, digits: &str) -> Result<WholeNumber, E> {
                let decimal = digits.bytes().all(|byte| byte.is_ascii_digit());
                let number = digits.parse().ok().filter(|_| decimal);
                number.map(WholeNumber).ok_or_else(|| {
                    E::custom(format!("{digits:?} is not a whole number from 0 to {}", u64::MAX))
                })
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// How a lock is held.
#[derive(Debug, Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ModeField {
    Exclusive,
    Shared,
    Permit,
}

impl From<ModeField> for ModeKind {
    fn from(mode: ModeField) -> Self {
        match mode {
            ModeField::Exclusive => Self::Exclusive,
            ModeField::Shared => Self::Shared,
            ModeField::Permit => Self::Permit,
        }
    }
}

/// A session's id and secret, as a field of a body.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionField {
    id: WholeNumber,
    secret: String,
}

impl SessionField {
    pub(crate) fn parse(&self) -> Result<SessionRef, ApiError> {
        Ok(SessionRef { id: request::session_id(self.id.0)?, secret: secret(&self.secret)? })
    }
}

/// A reference to a ticket, with its secret, from the fields of a body.
pub(crate) fn ticket(
    name: &str,
    token: WholeNumber,
    proof: &str,
) -> Result<request::TicketRequest, ApiError> {
    let (name, secret) = (text::read(name), secret(proof)?);
    Ok(request::TicketRequest { name, token: token.0, secret })
}

pub(crate) fn name(text: &str) -> Result<LockName, ApiError> {
    request::name(&text::read(text))
}

/// Parses a prefix of names.
pub(crate) fn prefix(text: &str) -> Result<Vec<u8>, ApiError> {
    let bytes = text::read(text);
    request::prefix(&bytes).map(|()| bytes)
}

pub(crate) fn optional(text: Option<&str>) -> Option<Vec<u8>> {
    text.map(text::read)
}

/// Parses a secret from hexadecimal digits.
pub(crate) fn secret(text: &str) -> Result<Secret, ApiError> {
    let digit = |digit: char| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits: Option<Vec<u8>> = text.chars().map(digit).collect();
    let (pairs, odd) = digits.as_deref().unwrap_or_default().as_chunks::<2>();
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    // Other characters, or half a byte, are as wrong as any other length.
    request::secret(if odd.is_empty() { &bytes } else { &[] })
}

pub(crate) fn limit(limit: Option<WholeNumber>) -> Result<usize, ApiError> {
    request::limit(limit.map(|limit| limit.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_be_digit_strings() {
        let read = |text| serde_json::from_str::<WholeNumber>(text).map(|whole| whole.0).ok();
        assert_eq!(read("9007199254740993"), Some(9_007_199_254_740_993));
        assert_eq!(read("\"9007199254740993\""), Some(9_007_199_254_740_993));
        for wrong in ["-1", "1.0", "\"\"", "\"+1\"", "\" 1\"", "\"0x1\"", "null", "true", "[1]"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn secrets_are_parsed_strictly() {
        assert_eq!(secret("000102030405060708090a0B0c0d0e0f").unwrap().0[11], 11);
        for wrong in
            ["", "00", "+f000000000000000000000000000000", &"g".repeat(32), &"é".repeat(16)]
        {
            assert!(secret(wrong).is_err(), "{wrong}");
        }
    }
}
