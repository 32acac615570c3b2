//! A layer that lets a request through only if no later holder has shown its token.
//!
//! The path of a request: lock the resource within this process, show the token to the store behind
//! the layer, run the handler, unlock when the response has been produced. If an earlier request is
//! in the way, the token is shown first, which cuts off the bodies of superseded holders and
//! rejects their waiting requests, and then again when it is this request's turn.

use super::body::{BoxError, RequestBody, ResponseBody};
use super::response::ErrorResponse;
use super::token_of;
use crate::resource_locks::{Caller, Held, ResourceLocks};
use crate::{Fence, InvalidToken, Token};
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;
use tower_layer::Layer;
use tower_service::Service;

/// Default for how long a request waits for the ones before it.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a finished response may take to send once a later holder has come: a client that reads
/// gets it, one that has stalled does not.
const LAST_CALL: Duration = Duration::from_secs(1);
/// Default for how long the client may stall in the middle of a request's body. Less than
/// [`TIMEOUT`], so that the same holder's next request gets its turn.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How many requests with the same or a later token may be running or waiting for one resource. A
/// lock has one holder at a time, so there are few unless its requests are slow.
const REQUESTS_MAX: usize = 1_000;

type ResourceOf = dyn Fn(&Parts) -> String + Send + Sync;

/// Checks the `Fencing-Token` of each request, and runs the requests for one resource one after the
/// other (those with shared tokens together).
///
/// The numbers are kept by any other [`Fence`], so they survive the process. The resource is the
/// request's percent-decoded path by default, see [`resource`](Self::resource).
///
/// - A request without a token passes if its method is safe (`GET`, `HEAD`, ...): reads can't be
///   fenced. Others get a 428. A `GET` *with* a token raises the fence before the handler reads.
/// - An invalid token gets a 400, a superseded one a 409 with both tokens.
/// - If the store fails, or the requests before it take too long, the request gets a 503 and the
///   handler is not called.
///
/// The `Token` is in the request's extensions.
///
/// # How long a request occupies its resource
///
/// Until the handler has returned *and* its response body has been produced to the end or dropped.
///
/// - A handler runs to completion even if its client disconnects: dropped halfway, it could leave a
///   write in flight that lands after the next holder's.
/// - A response body is dropped when its client disconnects. Code in a streamed body is then
///   cancelled at its current `await`, so write in the handler and only read in the body.
/// - A request whose client stalls in the middle of its body fails after 10s, see
///   [`body_timeout`](Self::body_timeout). A client that does not read its response occupies the
///   resource until it disconnects or a later holder comes.
/// - Once a later holder has shown its token, what the superseded request still reads or sends is
///   cut off: reading its body fails with [`Superseded`](super::Superseded) at once, and its
///   response body is dropped after 1s. So a stalled upload or download does not keep the later
///   holder waiting; a handler that stalls on something else does, until the
///   [`timeout`](Self::timeout).
///
/// # One process
///
/// **All requests for a resource must go through one process**, and through layers that were given
/// the same `Arc` of the store. If the service runs in several processes, check the token inside
/// the transaction of the handler instead.
#[derive(Clone)]
pub struct FenceLayer {
    shared: Arc<Shared>,
}

#[derive(Clone)]
struct Shared {
    store: Arc<dyn Fence>,
    /// `None` means the path.
    resource_of: Option<Arc<ResourceOf>>,
    timeout: Duration,
    body_timeout: Duration,
    locks: Arc<ResourceLocks>,
}

impl FenceLayer {
    /// Creates a layer that keeps the numbers in this store.
    pub fn new(store: Arc<dyn Fence>) -> Self {
        let locks = locks_of(&store);
        let shared = Shared {
            store,
            resource_of: None,
            timeout: TIMEOUT,
            body_timeout: BODY_TIMEOUT,
            locks,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Sets which resource a request is for. Default: its path, percent-decoded, as the layer sees
    /// it (a router may have stripped a prefix).
    ///
    /// Requests that touch the same data must give the same name.
    #[must_use]
    pub fn resource(self, of: impl Fn(&Parts) -> String + Send + Sync + 'static) -> Self {
        let resource_of: Option<Arc<ResourceOf>> = Some(Arc::new(of));
        Self { shared: Arc::new(Shared { resource_of, ..Shared::clone(&self.shared) }) }
    }

    /// Sets how long a request waits for the ones before it. Default: 30s.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { shared: Arc::new(Shared { timeout, ..Shared::clone(&self.shared) }) }
    }

    /// Sets how long a handler waits for the next part of a request's body before reading it fails
    /// with [`Stalled`](super::Stalled). Default: 10s.
    ///
    /// A holder whose upload has stalled, for instance on a broken connection, can make its next
    /// request after this time.
    #[must_use]
    pub fn body_timeout(self, body_timeout: Duration) -> Self {
        Self { shared: Arc::new(Shared { body_timeout, ..Shared::clone(&self.shared) }) }
    }
}

/// The locks that all layers over one store share.
fn locks_of(store: &Arc<dyn Fence>) -> Arc<ResourceLocks> {
    static BY_STORE: Mutex<Option<HashMap<usize, Weak<ResourceLocks>>>> = Mutex::new(None);
    let address = Arc::as_ptr(store).cast::<()>() as usize;
    let mut by_store = BY_STORE.lock().unwrap_or_else(PoisonError::into_inner);
    let by_store = by_store.get_or_insert_default();
    // A layer keeps its store alive, so an address whose locks are alive belongs to the same store.
    by_store.retain(|_, locks| locks.strong_count() > 0);
    if let Some(locks) = by_store.get(&address).and_then(Weak::upgrade) {
        return locks;
    }
    let locks = Arc::default();
    by_store.insert(address, Arc::downgrade(&locks));
    locks
}

impl fmt::Debug for FenceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceLayer").field("timeout", &self.shared.timeout).finish_non_exhaustive()
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
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

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
            let admitted = match shared.admit(&mut parts).await {
                Ok(admitted) => admitted,
                Err(error) => return Ok(error.into_response()),
            };
            let superseded = admitted.as_ref().map(|admitted| admitted.caller.superseded());
            let body = RequestBody::new(body, superseded, shared.body_timeout);
            let handler = inner.call(Request::from_parts(parts, body));
            let (reply, replied) = oneshot::channel();
            tokio::spawn(run(handler, admitted, reply));
            replied.await.unwrap_or_else(|_| Ok(ErrorResponse::panicked().into_response()))
        })
    }
}

/// Runs the handler to completion, and then keeps the resource until the response has been
/// produced.
async fn run<R, E>(
    handler: impl Future<Output = Result<Response<R>, E>>,
    admitted: Option<Admitted>,
    reply: oneshot::Sender<Result<Response<ResponseBody<R>>, E>>,
) where
    R: Body,
{
    let response = match handler.await {
        Ok(response) => response,
        Err(error) => {
            let _ = reply.send(Err(error));
            return;
        }
    };
    let (parts, body) = response.into_parts();
    let (body, produced) = ResponseBody::new(body);
    // If the client has disconnected, the body is dropped here.
    let _ = reply.send(Ok(Response::from_parts(parts, body)));
    if let Some(admitted) = admitted {
        let superseded = async {
            admitted.caller.superseded().await;
            tokio::time::sleep(LAST_CALL).await;
        };
        tokio::select! {
            () = produced.ended() => {}
            () = superseded => produced.cut_off(),
        }
    }
}

/// A request whose token has passed, and whose turn it is.
#[derive(Debug)]
struct Admitted {
    // Dropped first: an entry must not be removed while its lock is held.
    _held: Held,
    caller: Caller,
}

impl Shared {
    /// Waits for the resource and shows the token. Returns `None` for a safe request without one.
    async fn admit(&self, parts: &mut Parts) -> Result<Option<Admitted>, ErrorResponse> {
        let token = match token_of(&parts.headers) {
            Ok(token) => token,
            Err(InvalidToken::Missing) if parts.method.is_safe() => return Ok(None),
            Err(InvalidToken::Missing) => return Err(ErrorResponse::no_token()),
            Err(invalid) => return Err(ErrorResponse::invalid_token(&invalid)),
        };
        let resource = match &self.resource_of {
            Some(of) => of(parts),
            None => percent_decoded(parts.uri.path())
                .ok_or_else(|| ErrorResponse::invalid_path(parts.uri.path()))?,
        };
        let too_many = || ErrorResponse::too_many(&resource, REQUESTS_MAX);
        let caller = self.locks.join(&resource, token, REQUESTS_MAX).ok_or_else(too_many)?;
        let held = match caller.try_lock(token.mode()) {
            Some(held) => held,
            None => self.wait(&caller, &resource, token).await?,
        };
        self.raise(&caller, &resource, token).await?;
        parts.extensions.insert(token);
        Ok(Some(Admitted { _held: held, caller }))
    }

    /// Cuts off earlier holders, and waits for the requests that are in the way.
    async fn wait(
        &self,
        caller: &Caller,
        resource: &str,
        token: Token,
    ) -> Result<Held, ErrorResponse> {
        // One of several requests with the same token is enough to cut off the earlier holders.
        if !caller.is_shown() {
            self.raise(caller, resource, token).await?;
        }
        tokio::select! {
            held = caller.lock(token.mode()) => Ok(held),
            refused = caller.superseded() => Err(ErrorResponse::failed(&refused.into())),
            () = tokio::time::sleep(self.timeout) => {
                Err(ErrorResponse::timed_out(resource, self.timeout))
            }
        }
    }

    async fn raise(
        &self,
        caller: &Caller,
        resource: &str,
        token: Token,
    ) -> Result<(), ErrorResponse> {
        match self.store.raise(resource, token).await {
            Ok(found) => {
                caller.raised(found.highest);
                Ok(())
            }
            Err(error) => Err(ErrorResponse::failed(&error)),
        }
    }
}

/// `None` if the result is not UTF-8. Leaves a `%` that is not followed by two hexadecimal digits
/// as it is, like servers and routers do.
fn percent_decoded(path: &str) -> Option<String> {
    let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        let byte = match (first, tail) {
            (b'%', [high, low, after @ ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| {
                rest = after;
                high * 16 + low
            }),
            _ => None,
        };
        decoded.push(byte.unwrap_or(*first));
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded_once() {
        for (path, decoded) in [
            ("/reports/7", Some("/reports/7")),
            ("/reports/%37", Some("/reports/7")),
            ("/%e2%82%AC", Some("/€")),
            ("/50%25", Some("/50%")),
            ("/%2537", Some("/%37")),
            ("/%zz%4", Some("/%zz%4")),
            ("/%ff", None),
        ] {
            assert_eq!(percent_decoded(path).as_deref(), decoded, "{path}");
        }
    }
}
