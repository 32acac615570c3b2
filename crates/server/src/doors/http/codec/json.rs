//! JSON bodies: parsed once, errors in our own shape.

use holdfast_gateway::ApiError;
use serde::de::DeserializeOwned;

/// A whole body.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(bytes).map_err(|error| {
        ApiError::bad(
            format!("the body is not the JSON that is wanted here: {error}"),
            "send one JSON object with the fields of this call",
        )
    })
}
