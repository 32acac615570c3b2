//! Parses JSON bodies; errors are reported as `ApiError`.

use holdfast_gateway::ApiError;
use serde::de::DeserializeOwned;
use std::fmt::Display;

/// Parses a complete body. It must be an object: serde would also accept an array of the fields.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let bad = |problem: &dyn Display| {
        ApiError::bad(
            format!("the body is not the expected JSON: {problem}"),
            "send one JSON object with the fields of this call",
        )
    };
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(bad(&"it is an array"));
    }
    serde_json::from_slice(bytes).map_err(|error| bad(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    /// An array of a struct's values was taken for the struct: `["seat-12A"]` for a whole request.
    #[test]
    fn arrays_are_refused() {
        #[derive(Debug, Deserialize)]
        struct Named {
            name: String,
        }
        let named: Named = parse(b" {\"name\": \"seat-12A\"}").expect("an object with its field");
        assert_eq!(named.name, "seat-12A");
        let refused = parse::<Named>(b" [\"seat-12A\"]").expect_err("no object");
        assert!(refused.message.ends_with("it is an array"), "{}", refused.message);
    }
}
