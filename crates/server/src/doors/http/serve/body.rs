//! Reads request bodies, with a limit on their size.

use crate::doors::http::codec::json;
use crate::doors::http::translate::error_response::HttpError;
use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use holdfast_gateway::{ApiError, Code};
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::timeout;
use tokio_stream::StreamExt;

/// The longest body: sixteen names, a note and a label, or a value, each byte written as escapes.
const BODY_BYTES_MAX: usize = 1 << 20;

/// A body that is too long is still read up to here: most clients read the response only after they
/// have sent everything.
const DISCARDED_BYTES_MAX: usize = 16 << 20;

/// How long to wait for the body of a request that is refused anyway.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

/// An extractor for the parsed JSON body.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = HttpError;

    async fn from_request(request: Request, _: &S) -> Result<Self, HttpError> {
        // The body has already arrived: see `request_limit.rs`.
        let bytes = collect(request.into_body(), |_| {}).await?;
        Ok(Self(json::parse(&bytes)?))
    }
}

/// Reads and discards a body, so that the connection can be reused and the client sees the
/// response. Returns false if it is too long or does not arrive in time.
pub(crate) async fn discard(body: Body) -> bool {
    let mut pieces = body.into_data_stream();
    let read = async {
        let mut len = 0;
        while let Some(Ok(piece)) = pieces.next().await {
            len += piece.len();
            if len > BODY_BYTES_MAX {
                return false;
            }
        }
        true
    };
    timeout(DISCARD_TIMEOUT, read).await.unwrap_or(false)
}

/// Reads a whole body. `kept` is called with the size of each piece that is kept in memory.
pub(crate) async fn collect(body: Body, mut kept: impl FnMut(usize)) -> Result<Bytes, ApiError> {
    let (mut bytes, mut len) = (Vec::new(), 0);
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| {
            ApiError::bad("the body is cut off", "send as many bytes as Content-Length says")
        })?;
        len += piece.len();
        if len > DISCARDED_BYTES_MAX {
            break;
        }
        if len <= BODY_BYTES_MAX {
            bytes.extend_from_slice(&piece);
            kept(piece.len());
        }
    }
    if len > BODY_BYTES_MAX {
        let message = format!("the body is longer than {BODY_BYTES_MAX} bytes");
        return Err(ApiError::new(Code::TooLarge, message, "send less in one request"));
    }
    Ok(bytes.into())
}
