//! How many requests a node answers at once, waits included.

use super::failure::refuse;
use crate::failure::{Failure, Kind};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Requests at once. Each costs a few KB while it waits for its turn: all stay near 200 MB. Beyond
/// it the answer is "busy".
pub(crate) const REQUESTS_MAX: usize = 32_768;

/// Lets a request in while there is room.
pub(crate) async fn check(
    State(room): State<Arc<Semaphore>>,
    request: Request,
    next: Next,
) -> Response {
    match room.try_acquire() {
        Ok(_permit) => next.run(request).await,
        Err(_) => {
            let message = "too many requests wait at this node: nothing was done";
            let hint = "try again in a moment, or ask another node";
            let failure = Failure::new(Kind::Unavailable, "busy", message, hint);
            refuse(request, failure).await
        }
    }
}
