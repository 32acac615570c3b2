//! Fencing over HTTP: the header `Fencing-Token`, and a layer that checks it before a service.
//!
//! The holder sends its token along:
//!
//! ```
//! use holdfast_fence::{Token, http::insert_token};
//!
//! let mut request = http::Request::put("http://10.0.0.7/reports/7").body("total 40")?;
//! insert_token(request.headers_mut(), Token::exclusive(35)?);
//! assert_eq!(request.headers()["fencing-token"], "35");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The service checks it, with a [`FenceLayer`] around its handlers or, if it runs in more than one
//! process, with [`token_of`] and a check inside the handler's own transaction
//! (`postgres::check`, `sqlite::check`).

mod body;
mod layer;
mod response;

pub use body::{RequestBody, ResponseBody, Stalled, Superseded};
pub use layer::{FenceLayer, FenceService};

use crate::{InvalidToken, Token};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The header that carries the token: `Fencing-Token: 35` or `Fencing-Token: 35;shared`.
pub const FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");

/// The token of a request. [`InvalidToken::Missing`] if it has no such header.
pub fn token_of(headers: &HeaderMap) -> Result<Token, InvalidToken> {
    let values: Vec<_> = headers.get_all(FENCING_TOKEN).iter().collect();
    if values.is_empty() {
        return Err(InvalidToken::Missing);
    }
    // Several headers mean the same as one with a list, which is not a token.
    let text = values.iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    text.collect::<Vec<_>>().join(", ").parse()
}

/// Sets the token of a request, replacing any previous one.
pub fn insert_token(headers: &mut HeaderMap, token: Token) {
    headers.insert(FENCING_TOKEN, header_value(token));
}

/// The token as the value of [`FENCING_TOKEN`], for clients with a builder:
/// `request.header(FENCING_TOKEN, header_value(token))`.
pub fn header_value(token: Token) -> HeaderValue {
    // Digits and ";shared" are always valid.
    HeaderValue::from_str(&token.to_string()).unwrap_or(HeaderValue::from_static("0"))
}
