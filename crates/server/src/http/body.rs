//! Bodies and queries: read with a bound in size and time, parsed once, errors in our own shape.

use crate::failure::Failure;
use axum::body::{self, Body};
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use holdfast_core::{
    Label, LockName, Mode, Note, RequestKey, Secret, SessionId, SessionRef, Token,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::num::NonZeroU64;
use std::time::Duration;
use tokio::time::timeout;

/// The longest body: sixteen names, a note and a label, written as escapes.
const BODY_BYTES_MAX: usize = 512 << 10;

/// A body comes with its request or soon after.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// A JSON body.
pub(crate) struct Sent<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Sent<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let bytes = timeout(BODY_PATIENCE, collect(request.into_body()));
        let bytes = bytes.await.map_err(|_| Failure::too_slow())??;
        serde_json::from_slice(&bytes).map(Self).map_err(|error| {
            Failure::bad(
                format!("the body is not the JSON that is wanted here: {error}"),
                "send one JSON object with the fields of this call",
            )
        })
    }
}

async fn collect(body: Body) -> Result<body::Bytes, Failure> {
    body::to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| {
        Failure::too_large(
            format!("the body is cut off or longer than {BODY_BYTES_MAX} bytes"),
            "send less in one request",
        )
    })
}

/// A query.
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        Query::try_from_uri(&parts.uri).map(|Query(query)| Self(query)).map_err(|error| {
            Failure::bad(
                format!("the query is not the one that is wanted here: {error}"),
                "percent-encode names, as in ?name=seat%2F12A",
            )
        })
    }
}

/// How a lock is held.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ModeField {
    Exclusive,
    Shared,
    Permit,
}

/// The mode that a token was granted in, for a fence.
pub(crate) fn fenced_mode(mode: Option<ModeField>) -> Result<Mode, Failure> {
    match mode {
        None | Some(ModeField::Exclusive) => Ok(Mode::Exclusive),
        Some(ModeField::Shared) => Ok(Mode::Shared),
        Some(ModeField::Permit) => Err(Failure::bad(
            "permits can't be fenced: several of them are held at once",
            "use a lock with one holder at a time",
        )),
    }
}

/// A session and its proof, as it stands in a body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionField {
    id: u64,
    secret: String,
}

impl SessionField {
    pub(crate) fn parse(&self) -> Result<SessionRef, Failure> {
        let id = NonZeroU64::new(self.id).ok_or_else(|| {
            Failure::bad("a session's id is not 0", "send the id it was opened with")
        })?;
        Ok(SessionRef { id: SessionId(id), secret: secret(&self.secret)? })
    }
}

pub(crate) fn name(text: &str) -> Result<LockName, Failure> {
    LockName::parse(text)
        .map_err(|error| Failure::bad(error.to_string(), "use a name of 1 to 512 bytes"))
}

pub(crate) fn label(text: Option<String>) -> Result<Option<Label>, Failure> {
    let parse = |text| Label::parse(text);
    let label = text.map(parse).transpose();
    label.map_err(|error| Failure::bad(error.to_string(), "use a shorter label"))
}

pub(crate) fn note(text: Option<String>) -> Result<Option<Note>, Failure> {
    let parse = |text| Note::parse(text);
    let note = text.map(parse).transpose();
    note.map_err(|error| Failure::bad(error.to_string(), "use a shorter note"))
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
    if text.len() != 32 || !text.is_ascii() {
        return Err(wrong());
    }
    let mut secret = [0; 16];
    for (byte, at) in secret.iter_mut().zip((0..).step_by(2)) {
        let digits = text.get(at..at + 2).ok_or_else(wrong)?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    Ok(Secret(secret))
}

pub(crate) fn token(number: u64) -> Result<Token, Failure> {
    if number == 0 {
        return Err(Failure::bad(
            "a fencing token is not 0",
            "send the one that came with the grant",
        ));
    }
    Ok(Token(number))
}
