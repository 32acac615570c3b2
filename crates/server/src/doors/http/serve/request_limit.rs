//! Limits how many requests a node handles at once, waits included, and how long they may take to
//! arrive.

use super::body;
use super::refuse::refuse;
use crate::activity::{Activity, Busy, IdleSet};
use crate::doors::grpc;
use crate::doors::http::serve::connection::Connection;
use crate::doors::http::translate::error_response::respond;
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::middleware::{Next, map_response};
use axum::response::Response;
use axum::routing::MethodRouter;
use bytes::Bytes;
use holdfast_gateway::{ApiError, Code};
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// Concurrent requests. A waiting one costs a few KB, so all of them stay near 200 MB. Beyond it
/// the response is "busy".
const REQUESTS_MAX: usize = 32_768;

/// Concurrent requests whose bodies have not arrived yet. A body comes with its head or soon after:
/// so many late ones are not honest clients, and the oldest is evicted for the next.
const ARRIVING_MAX: usize = 4_096;

/// Bytes of bodies that have not arrived completely.
const ARRIVING_BYTES_MAX: usize = 64 << 20;

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The limits that all requests of a node share.
pub(crate) struct RequestLimit {
    requests: Arc<Semaphore>,
    arriving: Arc<IdleSet>,
    arriving_bytes: AtomicUsize,
}

impl Default for RequestLimit {
    fn default() -> Self {
        Self::new(REQUESTS_MAX)
    }
}

/// A request that has not arrived completely.
struct Arrival<'a> {
    room: &'a RequestLimit,
    activity: Arc<Activity>,
    bytes: usize,
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.room.arriving_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl RequestLimit {
    fn new(requests_max: usize) -> Self {
        let requests = Arc::new(Semaphore::new(requests_max));
        Self { requests, arriving: Arc::default(), arriving_bytes: AtomicUsize::new(0) }
    }

    fn arrive(&self) -> Arrival<'_> {
        if self.arriving.len() >= ARRIVING_MAX {
            self.arriving.evict_oldest();
        }
        Arrival { room: self, activity: self.arriving.enter(), bytes: 0 }
    }

    /// Waits for the first message of a stream, whose end is not waited for.
    pub(crate) async fn first<T>(&self, message: impl Future<Output = T>) -> Result<T, ApiError> {
        let arrival = self.arrive();
        in_time(&arrival.activity, message).await
    }

    /// Waits until a request has arrived completely.
    async fn whole(&self, request: Request) -> Result<Request, ApiError> {
        let (head, body) = request.into_parts();
        if body.is_end_stream() {
            return Ok(Request::from_parts(head, body));
        }
        let mut arrival = self.arrive();
        let activity = arrival.activity.clone();
        let kept = |bytes| {
            arrival.bytes += bytes;
            let before = self.arriving_bytes.fetch_add(bytes, Ordering::Relaxed);
            if before.saturating_add(bytes) > ARRIVING_BYTES_MAX {
                self.arriving.evict_oldest();
            }
        };
        let bytes = in_time(&activity, body::collect(body, kept)).await??;
        Ok(Request::from_parts(head, Body::from(bytes)))
    }

    /// Takes a place among the requests in progress; fails if there is none.
    pub(crate) fn enter(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        self.requests.clone().try_acquire_owned().map_err(|_| {
            let message = "too many requests wait at this node: nothing was done";
            let hint = "try again in a moment, or ask another node";
            ApiError::new(Code::Busy, message, hint)
        })
    }
}

async fn in_time<T>(activity: &Activity, arriving: impl Future<Output = T>) -> Result<T, ApiError> {
    tokio::select! {
        biased;
        arrived = arriving => Ok(arrived),
        () = activity.evicted() => Err(ApiError::too_slow()),
        () = sleep(BODY_TIMEOUT) => Err(ApiError::too_slow()),
    }
}

/// Lets a request in once it has arrived, if there is room.
pub(crate) async fn check(
    State(room): State<Arc<RequestLimit>>,
    connection: Connection,
    mut request: Request,
    next: Next,
) -> Response {
    // Monitoring must always get through, above all when the node is full.
    if matches!(request.uri().path(), "/healthz" | "/readyz" | "/metrics") {
        let busy = connection.begin();
        return answer(next.run(request).await, busy);
    }
    if grpc::is_session(request.uri().path()) {
        request.extensions_mut().insert(room);
        return next.run(request).await;
    }
    let grpc = grpc::is_grpc(request.headers());
    let request = match room.whole(request).await {
        Ok(request) => request,
        Err(failure) => return respond(grpc, failure),
    };
    match room.enter() {
        Ok(_permit) => {
            let busy = connection.begin();
            answer(next.run(request).await, busy)
        }
        Err(failure) => refuse(request, failure).await,
    }
}

/// Keeps the connection busy until the response is sent.
fn answer(response: Response, busy: Option<Busy>) -> Response {
    response.map(|body| Body::new(CountedBody { body, _busy: busy }))
}

/// The body of a response.
struct CountedBody {
    body: Body,
    _busy: Option<Busy>,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Serves connections beyond the limit: only the liveness check still works.
pub(crate) fn when_full(healthz: MethodRouter) -> Router {
    let full = async |request: Request| {
        let failure = ApiError::new(
            Code::Busy,
            "this node has too many connections",
            "close those that you don't need, or ask another node",
        );
        refuse(request, failure).await
    };
    Router::new().route("/healthz", healthz).fallback(full).layer(map_response(close))
}

/// Closes the connection after the response.
async fn close(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::mpsc;

    async fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut received = String::new();
        stream.read_to_string(&mut received).await.unwrap();
        received
    }

    /// When there was no room for requests, health checks failed too.
    #[tokio::test]
    async fn requests_beyond_the_limit_are_refused_until_there_is_room() {
        let (begun, mut begins) = mpsc::channel(1);
        let turn = Arc::new(Semaphore::new(0));
        let waits = turn.clone();
        let handler = move || async move {
            begun.send(()).await.unwrap();
            waits.acquire().await.unwrap().forget();
            "served"
        };
        let room = Arc::new(RequestLimit::new(1));
        let router = Router::new()
            .route("/", get(handler))
            .route("/healthz", get(|| async { "alive" }))
            .layer(from_fn_with_state(room, check));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let first = tokio::spawn(ask(address, "/"));
        begins.recv().await.unwrap();
        let second = ask(address, "/").await;
        assert!(second.starts_with("HTTP/1.1 503") && second.contains("busy"), "{second}");
        assert!(ask(address, "/healthz").await.contains("alive"));
        turn.add_permits(2);
        assert!(first.await.unwrap().contains("served"));
        assert!(ask(address, "/").await.contains("served"));
    }

    /// Requests whose bodies did not arrive used to take the places of others indefinitely.
    #[tokio::test]
    async fn incomplete_request_takes_no_slot() {
        let handler = |body: String| async move { format!("served {body}") };
        let room = Arc::new(RequestLimit::new(1));
        let router = Router::new()
            .route("/", get(|| async { "served" }).post(handler))
            .layer(from_fn_with_state(room.clone(), check));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let mut half = TcpStream::connect(address).await.unwrap();
        let head =
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nConnection: close\r\n\r\nha";
        half.write_all(head).await.unwrap();
        while room.arriving.len() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(ask(address, "/").await.contains("served"));
        half.write_all(b"lf").await.unwrap();
        let mut received = String::new();
        half.read_to_string(&mut received).await.unwrap();
        assert!(received.contains("served half"), "{received}");
    }
}
