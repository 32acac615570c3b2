//! A layer that lets a request through only if no later holder has shown its token.
//!
//! The path of a request: wait until the requests inside the resource have finished, show the token to
//! the store behind the layer, run the handler, leave. A refused holder never enters; one that stalls
//! inside blocks its successor, so nothing it does can come after the successor's first read.

use super::queue::{Inside, Queues};
use super::token_of;
use crate::{Error, Fence, InvalidToken};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode, header};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// How long a request waits for the ones before it.
const WAIT: Duration = Duration::from_secs(30);
/// How many requests may be inside one resource or waiting for it. A lock admits one holder at a time,
/// so there are few unless its requests are slow.
const REQUESTS_MAX: usize = 1_000;

type ResourceOf = dyn Fn(&Parts) -> String + Send + Sync;

/// Checks the `Fencing-Token` of each request, and runs the requests for one resource one after the
/// other (those with shared tokens together).
///
/// The numbers are kept by any other [`Fence`], so they survive the process. The resource is the
/// request's path by default, see [`resource`](Self::resource).
///
/// - A request without a token passes if its method is safe (`GET`, `HEAD`, ...): reads can't be fenced.
///   Others get a 428. A `GET` *with* a token raises the fence before the handler reads.
/// - An invalid token gets a 400, a superseded one a 409 with both tokens.
/// - If the store fails, or the requests before it take too long, it gets a 503 and the handler is not
///   called.
///
/// A handler runs to completion even if its client disconnects: dropped halfway, it could leave a write
/// in flight that lands after the next holder's. The `Token` is in the request's extensions.
///
/// **All requests for a resource must go through one process.** If the service runs in several, check
/// the token inside the transaction of the handler instead.
#[derive(Clone)]
pub struct FenceLayer {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Fence>,
    resource_of: Box<ResourceOf>,
    wait: Duration,
    queues: Arc<Queues>,
}

impl FenceLayer {
    /// Keeps the numbers in this store.
    pub fn new(store: Arc<dyn Fence>) -> Self {
        let resource_of = Box::new(|parts: &Parts| parts.uri.path().to_owned());
        Self { shared: Arc::new(Shared { store, resource_of, wait: WAIT, queues: Arc::default() }) }
    }

    /// Which resource a request is for. Default: its path.
    #[must_use]
    pub fn resource(self, of: impl Fn(&Parts) -> String + Send + Sync + 'static) -> Self {
        let (store, wait) = (self.shared.store.clone(), self.shared.wait);
        let queues = Arc::default();
        Self { shared: Arc::new(Shared { store, resource_of: Box::new(of), wait, queues }) }
    }
}

impl fmt::Debug for FenceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceLayer").field("wait", &self.shared.wait).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = FenceService<S>;

    fn layer(&self, inner: S) -> FenceService<S> {
        FenceService { inner, shared: self.shared.clone() }
    }
}

/// A service behind a [`FenceLayer`].
#[derive(Clone)]
pub struct FenceService<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S: fmt::Debug> fmt::Debug for FenceService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, B, R> Service<Request<B>> for FenceService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Send + 'static,
    R: From<String> + Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        // Call the instance that was polled ready.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        let shared = self.shared.clone();
        Box::pin(async move {
            let inside = match shared.admit(&mut parts).await {
                Ok(inside) => inside,
                Err(refusal) => return Ok(refusal.response()),
            };
            let call = inner.call(Request::from_parts(parts, body));
            let handler = tokio::spawn(async move {
                let response = call.await;
                drop(inside);
                response
            });
            handler.await.unwrap_or_else(|_| Ok(Refusal::panicked().response()))
        })
    }
}

impl Shared {
    /// Waits for the resource and shows the token. `None` is a safe request without one.
    async fn admit(&self, parts: &mut Parts) -> Result<Option<Inside>, Refusal> {
        let token = match token_of(&parts.headers) {
            Ok(token) => token,
            Err(InvalidToken::Missing) if parts.method.is_safe() => return Ok(None),
            Err(invalid) => return Err(Refusal::invalid(&invalid)),
        };
        let resource = (self.resource_of)(parts);
        let enter = self.queues.enter(&resource, token.mode(), REQUESTS_MAX);
        let inside = match tokio::time::timeout(self.wait, enter).await {
            Ok(Some(inside)) => inside,
            Ok(None) | Err(_) => return Err(Refusal::busy(&resource)),
        };
        self.store.raise(&resource, token).await.map_err(|error| Refusal::failed(&error))?;
        parts.extensions.insert(token);
        Ok(Some(inside))
    }
}

/// A response of the layer itself, in the shape of Holdfast's own errors.
struct Refusal {
    status: StatusCode,
    body: serde_json::Value,
}

impl Refusal {
    fn new(status: StatusCode, code: &str, message: String, hint: &str) -> Self {
        let body = serde_json::json!({ "code": code, "message": message, "hint": hint });
        Self { status, body }
    }

    fn invalid(invalid: &InvalidToken) -> Self {
        let status = match invalid {
            InvalidToken::Missing => StatusCode::PRECONDITION_REQUIRED,
            _ => StatusCode::BAD_REQUEST,
        };
        let hint = "send the header Fencing-Token: 35, or 35;shared, with the lock's token";
        Self::new(status, "bad_token", invalid.to_string(), hint)
    }

    fn busy(resource: &str) -> Self {
        let message = format!("an earlier request for {resource:?} has not ended");
        let hint = "nothing was done: try again later";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message, hint)
    }

    fn failed(error: &Error) -> Self {
        let Some(refused) = error.refused() else {
            let status = match error {
                Error::InvalidResource { .. } => StatusCode::BAD_REQUEST,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            let hint = "the handler was not called: try again later";
            return Self::new(status, "fence_failed", error.to_string(), hint);
        };
        let hint = "stop, and acquire the lock again";
        let mut refusal = Self::new(StatusCode::CONFLICT, "fenced", error.to_string(), hint);
        refusal.body["shown"] = refused.shown.number().into();
        refusal.body["highest"] = refused.later().into();
        refusal
    }

    fn panicked() -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self::new(status, "panicked", "the handler panicked".into(), "see the service's log")
    }

    fn response<R: From<String>>(self) -> Response<R> {
        let mut response = Response::new(R::from(self.body.to_string()));
        *response.status_mut() = self.status;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }
}
