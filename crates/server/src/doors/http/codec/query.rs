//! Parses percent-encoded query strings; errors are reported as `ApiError`.

use crate::doors::http::codec::text;
use crate::doors::http::translate::error_response::HttpError;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use holdfast_gateway::ApiError;
use serde::Deserializer;
use serde::de::value::{Error, MapDeserializer};
use serde::de::{DeserializeOwned, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

/// An extractor for the parsed query string.
pub(crate) struct ParsedQuery<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for ParsedQuery<T> {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, HttpError> {
        let parsed = parse(parts.uri.query().unwrap_or_default()).map(Self).map_err(|error| {
            ApiError::bad(
                format!("invalid query: {error}"),
                "percent-encode names, as in ?name=seat%2F12A",
            )
        });
        Ok(parsed?)
    }
}

fn parse<T: DeserializeOwned>(query: &str) -> Result<T, Error> {
    let fields = query.split('&').filter(|field| !field.is_empty()).map(|field| {
        let (name, value) = field.split_once('=').unwrap_or((field, ""));
        Ok((decode(name)?, Value(decode(value)?)))
    });
    let fields: Vec<(String, Value)> = fields.collect::<Result<_, Error>>()?;
    T::deserialize(MapDeserializer::new(fields.into_iter()))
}

/// Percent-decodes; bytes that are not UTF-8 become text in the same form as in bodies.
fn decode(encoded: &str) -> Result<String, Error> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                let (Some(high), Some(low)) = (digit(), digit()) else {
                    return Err(Error::custom("a % without two hexadecimal digits"));
                };
                (high << 4 | low) as u8
            }
            byte => byte,
        });
    }
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| text::show(error.as_bytes())))
}

/// The value of a parameter: text, or whatever type its field parses from it.
struct Value(String);

impl IntoDeserializer<'_> for Value {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Value {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0.as_str() {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            other => Err(Error::custom(format!("{other:?} is neither true nor false"))),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::http::translate::fields::WholeNumber;
    use proptest::prelude::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Query {
        name: String,
        limit: Option<WholeNumber>,
        #[serde(default)]
        stale: bool,
    }

    #[test]
    fn queries_are_parsed() {
        let query: Query = parse("name=a%2Fb+c%25&limit=7&stale=true").unwrap();
        assert_eq!(query.name, "a/b c%");
        assert_eq!(query.limit.map(|limit| limit.0), Some(7));
        assert!(query.stale);
    }

    #[test]
    fn invalid_queries_are_refused() {
        for wrong in [
            "",
            "name=a&name=b",
            "name=a&more=1",
            "name=%4",
            "name=%zz",
            "name=a&limit=-1",
            "name=a&limit=1.5",
            "name=a&limit=",
            "name=a&stale=1",
        ] {
            assert!(parse::<Query>(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn every_byte_can_be_encoded(bytes in prop::collection::vec(any::<u8>(), 1..40)) {
            let encoded: String = bytes.iter().map(|byte| format!("%{byte:02X}")).collect();
            let shown = text::show(&bytes);
            let again: String = shown.bytes().map(|byte| format!("%{byte:02X}")).collect();
            // Both as it is and as it is shown.
            if std::str::from_utf8(&bytes).is_err() {
                let query: Query = parse(&format!("name={encoded}")).unwrap();
                prop_assert_eq!(text::read(&query.name), bytes.clone());
            }
            let query: Query = parse(&format!("name={again}")).unwrap();
            prop_assert_eq!(text::read(&query.name), bytes);
        }
    }
}
