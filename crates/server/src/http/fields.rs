//! The fields of bodies and queries: each parsed once, with what to do if it is wrong.

use super::text;
use crate::api::PAGE_MAX;
use crate::failure::Failure;
use holdfast_core::{
    Label, LockName, Mode, Note, Proof, Reason, RequestKey, Secret, SessionId, SessionRef, Target,
    Token, Value,
};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt;
use std::num::NonZeroU64;

/// The longest name of a host has 253 bytes.
const ADDRESS_BYTES_MAX: usize = 300;

/// A whole number, also as the decimal digits of a string: not every language has integers that
/// are exact.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole(pub(crate) u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Whole;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, or its decimal digits in a string")
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }
            fn visit_str<E: Error>(self, digits: &str) -> Result<Whole, E> {
                let decimal = digits.bytes().all(|byte| byte.is_ascii_digit());
                let number = digits.parse().ok().filter(|_| decimal);
                number.map(Whole).ok_or_else(|| {
                    E::custom(format!("{digits:?} is no whole number from 0 to {}", u64::MAX))
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

impl ModeField {
    /// The mode that is asked for.
    pub(crate) fn wanted(mode: Option<Self>, permits: Option<u32>) -> Result<Mode, Failure> {
        match (mode, permits) {
            (None | Some(Self::Exclusive), None) => Ok(Mode::Exclusive),
            (Some(Self::Shared), None) => Ok(Mode::Shared),
            (None | Some(Self::Permit), Some(of)) => Ok(Mode::Permit { of }),
            _ => Err(Failure::bad(
                "mode and permits don't fit together",
                "a permit needs permits, the other modes have none",
            )),
        }
    }

    /// The mode that a token was granted in, for a fence.
    pub(crate) fn fenced(mode: Option<Self>) -> Result<Mode, Failure> {
        match mode {
            None | Some(Self::Exclusive) => Ok(Mode::Exclusive),
            Some(Self::Shared) => Ok(Mode::Shared),
            Some(Self::Permit) => Err(Failure::bad(
                "permits can't be fenced: several of them are held at once",
                "use a lock with one holder at a time",
            )),
        }
    }
}

/// A session and its proof, as it stands in a body.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionField {
    id: Whole,
    secret: String,
}

impl SessionField {
    pub(crate) fn parse(&self) -> Result<SessionRef, Failure> {
        Ok(SessionRef { id: session_id(self.id)?, secret: secret(&self.secret)? })
    }
}

pub(crate) fn session_id(id: Whole) -> Result<SessionId, Failure> {
    NonZeroU64::new(id.0)
        .map(SessionId)
        .ok_or_else(|| Failure::bad("a session's id is not 0", "send the id it was opened with"))
}

pub(crate) fn name(text: &str) -> Result<LockName, Failure> {
    LockName::parse(text::read(text))
        .map_err(|error| Failure::bad(error.to_string(), "use a name of 1 to 512 bytes"))
}

/// What names begin with.
pub(crate) fn prefix(text: &str) -> Result<Vec<u8>, Failure> {
    let bytes = text::read(text);
    if bytes.len() > LockName::BYTES_MAX {
        let message = format!("a prefix has at most {} bytes", LockName::BYTES_MAX);
        return Err(Failure::bad(message, "no name is longer"));
    }
    Ok(bytes)
}

pub(crate) fn label(text: Option<&str>) -> Result<Option<Label>, Failure> {
    let label = text.map(|text| Label::parse(text::read(text))).transpose();
    label.map_err(|error| Failure::bad(error.to_string(), "use a shorter label"))
}

pub(crate) fn note(text: Option<&str>) -> Result<Option<Note>, Failure> {
    let note = text.map(|text| Note::parse(text::read(text))).transpose();
    note.map_err(|error| Failure::bad(error.to_string(), "use a shorter note"))
}

pub(crate) fn value(text: &str) -> Result<Value, Failure> {
    Value::parse(text::read(text))
        .map_err(|error| Failure::bad(error.to_string(), "keep large values elsewhere"))
}

/// Who does something to others, and why.
pub(crate) fn who(by: &str, reason: &str) -> Result<(Label, Reason), Failure> {
    let by = Label::parse(text::read(by))
        .map_err(|error| Failure::bad(error.to_string(), "say who asks, in few words"))?;
    let reason = Reason::parse(text::read(reason))
        .map_err(|error| Failure::bad(error.to_string(), "say why, in few words"))?;
    Ok((by, reason))
}

pub(crate) fn request_key(text: &str) -> Result<RequestKey, Failure> {
    RequestKey::parse(text).map_err(|error| {
        Failure::bad(
            error.to_string(),
            "use a random string, for instance a UUID, made anew for each acquire",
        )
    })
}

pub(crate) fn secret(text: &str) -> Result<Secret, Failure> {
    let wrong =
        || Failure::bad("a secret has 32 hexadecimal digits", "send the secret as it was received");
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() == 32).ok_or_else(wrong)?;
    let mut secret = [0; 16];
    for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair.iter().fold(0, |byte, digit| byte << 4 | digit);
    }
    Ok(Secret(secret))
}

pub(crate) fn token(number: Whole) -> Result<Token, Failure> {
    if number.0 == 0 {
        return Err(Failure::bad(
            "a fencing token is not 0",
            "send the one that came with the grant",
        ));
    }
    Ok(Token(number.0))
}

/// Which ticket is meant, and the proof that it is the asker's.
pub(crate) fn own(of: &str, number: Whole, proof: &str) -> Result<(Target, Proof), Failure> {
    let target = Target { name: name(of)?, token: Some(token(number)?) };
    Ok((target, Proof::Secret(secret(proof)?)))
}

/// Where peers reach a node: a name or an IP address, and a port.
pub(crate) fn address(text: String) -> Result<String, Failure> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    let port = port.and_then(|(_, port)| port.parse::<u16>().ok()).filter(|port| *port > 0);
    let plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    if port.is_none() || !plain || text.len() > ADDRESS_BYTES_MAX {
        let message = "an address is HOST:PORT";
        return Err(Failure::bad(message, "give the new node's port for peers: 10.0.0.4:7410"));
    }
    Ok(text)
}

/// How much is shown on a page.
pub(crate) fn limit(limit: Option<Whole>) -> Result<usize, Failure> {
    let limit = limit.map_or(Some(100), |limit| usize::try_from(limit.0).ok());
    limit.filter(|limit| (1..=PAGE_MAX).contains(limit)).ok_or_else(|| {
        Failure::bad(
            format!("limit must be from 1 to {PAGE_MAX}"),
            "ask for the next page with after",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_may_be_a_string_of_digits() {
        let read = |text| serde_json::from_str::<Whole>(text).map(|whole| whole.0).ok();
        assert_eq!(read("9007199254740993"), Some(9_007_199_254_740_993));
        assert_eq!(read("\"9007199254740993\""), Some(9_007_199_254_740_993));
        for wrong in ["-1", "1.0", "\"\"", "\"+1\"", "\" 1\"", "\"0x1\"", "null", "true", "[1]"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_secret_is_read_only_as_it_was_written() {
        assert_eq!(secret("000102030405060708090a0B0c0d0e0f").unwrap().0[11], 11);
        for wrong in
            ["", "00", "+f000000000000000000000000000000", &"g".repeat(32), &"é".repeat(16)]
        {
            assert!(secret(wrong).is_err(), "{wrong}");
        }
    }
}
