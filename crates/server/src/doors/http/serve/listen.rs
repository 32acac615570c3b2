//! HTTP connections: how many there may be, and how long they may be idle.
//!
//! HTTP/1 and HTTP/2 share one port, and so do JSON and gRPC.

use super::socket::{SharedSocket, Socket};
use crate::activity::Activity;
use crate::doors::Listener;
use crate::doors::connection_limit::{self, ConnectionLimit};
use crate::doors::http::serve::connection::Connection;
use crate::doors::http::serve::socket::Peer;
use crate::sockets::ALIVE_AFTER;
use crate::stream::Stream;
use axum::Router;
use axum::http::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::sleep;
use tonic::codegen::Service;

/// Concurrent requests on one HTTP/2 connection.
const STREAMS_MAX: u32 = 1_024;

/// The longest request head: a percent-encoded name in a query, and some headers.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A connection that is being closed may have a request on its way, and has this long to finish.
const FAREWELL: Duration = Duration::from_millis(250);

/// How long a connection may go without a complete request.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves until the future is dropped, which also drops every connection. Connections beyond the
/// limit are served by `when_full`, for a short time.
pub(crate) async fn serve(
    listener: Listener,
    router: Router,
    when_full: Router,
    limit: ConnectionLimit,
    idle_timeout: Duration,
) -> io::Result<()> {
    let talk = |stream, activity| talk(stream, router.clone(), activity, idle_timeout);
    let refuse = |stream, activity| self::talk(stream, when_full.clone(), activity, idle_timeout);
    connection_limit::serve(listener, limit, talk, refuse).await
}

/// Attaches the [`Connection`] to each of its requests.
#[derive(Clone)]
struct ConnectionService {
    router: Router,
    connection: Connection,
    peer: Peer,
}

impl<B> Service<Request<B>> for ConnectionService
where
    Router: Service<Request<B>>,
{
    type Response = <Router as Service<Request<B>>>::Response;
    type Error = <Router as Service<Request<B>>>::Error;
    type Future = <Router as Service<Request<B>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<B>>::poll_ready(&mut self.router, context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        request.extensions_mut().insert(self.connection.clone());
        request.extensions_mut().insert(self.peer.clone());
        self.router.call(request)
    }
}

async fn talk(stream: Stream, router: Router, activity: Arc<Activity>, idle_timeout: Duration) {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(idle_timeout)
        .max_buf_size(HEAD_BYTES_MAX);
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(ALIVE_AFTER)
        .keep_alive_timeout(ALIVE_AFTER)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32);
    let shared = SharedSocket::new(stream);
    let (connection, watched) = Connection::new(activity.clone());
    let peer = Peer::of(shared.clone());
    let service = TowerToHyperService::new(ConnectionService { router, connection, peer });
    let socket = TokioIo::new(Socket::new(shared.clone()));
    let mut serving = pin!(http.serve_connection(socket, service));
    let mut cut = pin!(watched.cut(&shared));
    // Whatever went wrong, the client is gone or sent garbage; nobody else needs to know.
    tokio::select! {
        _ = serving.as_mut() => return,
        () = cut.as_mut() => return,
        () = activity.evicted() => {}
        () = idle(&activity, idle_timeout) => {}
    }
    serving.as_mut().graceful_shutdown();
    let gone = async {
        loop {
            sleep(FAREWELL).await;
            // Requests made at the last moment are still answered.
            if activity.idle_for().is_some() {
                return;
            }
        }
    };
    tokio::select! {
        _ = serving => {}
        () = cut => {}
        () = gone => {}
    }
}

/// Resolves when a connection has been idle for `timeout`.
async fn idle(activity: &Activity, timeout: Duration) {
    loop {
        let so_far = activity.idle_for().unwrap_or_default();
        let Some(left) = timeout.checked_sub(so_far).filter(|left| !left.is_zero()) else { return };
        sleep(left).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::http::serve::request_limit::{self, RequestLimit};
    use crate::metrics::DoorMetrics;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{sleep, timeout};

    /// Nothing here takes this long unless it is broken.
    const LONG: Duration = Duration::from_secs(30);

    /// The start of an HTTP/2 connection, as a client sends it.
    const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

    /// The head of a `POST /` on stream 1 of such a connection, whose body does not arrive. Its
    /// first bytes are entries of HPACK's static table: POST, http and /.
    const HTTP2_POST: &[u8] = b"\0\0\x06\x01\x04\0\0\0\x01\x83\x86\x84\x41\x01a";

    /// Serves a page, and another that never responds.
    async fn start(connections_max: usize, idle_timeout: Duration) -> (SocketAddr, DoorMetrics) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let alive = || get(|| async { "alive" });
        let router = Router::new()
            .route("/", get(|| async { "here" }).post(|| async { "posted" }))
            .route("/wait", get(std::future::pending::<()>))
            .route("/healthz", alive())
            .layer(from_fn_with_state(Arc::<RequestLimit>::default(), request_limit::check));
        let metrics = DoorMetrics::default();
        let limit = ConnectionLimit { connections_max, metrics: metrics.clone() };
        let full = request_limit::when_full(alive());
        tokio::spawn(serve(listener.into(), router, full, limit, idle_timeout));
        (address, metrics)
    }

    fn ask(path: &str) -> Vec<u8> {
        format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").into_bytes()
    }

    async fn sends(address: SocketAddr, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    }

    /// Everything received until the other side closes the connection.
    async fn receive(stream: &mut TcpStream) -> String {
        let mut received = Vec::new();
        let read = timeout(LONG, stream.read_to_end(&mut received)).await;
        // A reset counts as closed.
        let _ = read.expect("the connection is closed");
        String::from_utf8_lossy(&received).into_owned()
    }

    /// Waits until no connection is counted any more.
    async fn all_gone(metrics: &DoorMetrics) {
        let gone = async {
            while metrics.connections.get() > 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, gone).await.expect("no connection is counted any more");
    }

    /// An HTTP/2 connection that made no request used to be kept forever.
    #[tokio::test]
    async fn silent_connections_are_closed() {
        let idle_timeout = Duration::from_millis(100);
        let (address, metrics) = start(10, idle_timeout).await;
        // Nothing; half of an HTTP/2 preface; half of an HTTP/1 head; HTTP/2 without a request; an
        // HTTP/2 request whose body does not arrive.
        let half_head = b"GET / HTTP/1.1\r\nHost: somewhere\r\nX-More: ";
        let half_request = [HTTP2, HTTP2_POST].concat();
        for begun in [b"".as_slice(), b"PRI * HTTP/2.0", half_head, HTTP2, &half_request] {
            let mut stream = sends(address, begun).await;
            let received = receive(&mut stream).await;
            assert!(!received.contains("here"), "{received}");
        }
        // Idle after its response.
        let mut stream = sends(address, b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n").await;
        assert!(receive(&mut stream).await.contains("here"));
        all_gone(&metrics).await;
    }

    /// When all connections were taken, health checks failed too.
    #[tokio::test]
    async fn connections_beyond_the_limit_are_refused() {
        let (address, metrics) = start(2, LONG).await;
        let mut kept = Vec::new();
        for _ in 0..2 {
            kept.push(sends(address, &ask("/wait")).await);
        }
        let refused = async {
            loop {
                let received = receive(&mut sends(address, &ask("/")).await).await;
                // Requests that overtook a `/wait` got its place.
                if received.starts_with("HTTP/1.1 503") {
                    return received;
                }
                kept.push(sends(address, &ask("/wait")).await);
            }
        };
        let received = timeout(LONG, refused).await.expect("the connections are all taken");
        assert!(received.contains("too many"), "{received}");
        assert!(metrics.connections_refused.get() > 0);
        for _ in 0..100 {
            // Silent ones are evicted here too.
            let silent = sends(address, b"").await;
            let received = receive(&mut sends(address, &ask("/healthz")).await).await;
            assert!(
                received.starts_with("HTTP/1.1 200") && received.contains("alive"),
                "{received}"
            );
            kept.push(silent);
        }
        drop(kept);
        all_gone(&metrics).await;
        assert!(receive(&mut sends(address, &ask("/")).await).await.contains("here"));
    }

    /// Enough silent connections used to lock everyone else out for half a minute, again and again;
    /// later the same was true of connections that had sent the head of an HTTP/2 request but not
    /// its body.
    #[tokio::test]
    async fn idle_connections_are_evicted_for_new_ones() {
        let (address, metrics) = start(4, LONG).await;
        let mut asked = sends(address, b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n").await;
        let mut first = [0; 12];
        timeout(LONG, asked.read_exact(&mut first)).await.unwrap().unwrap();
        let mut silent = Vec::new();
        let half_request = [HTTP2, HTTP2_POST].concat();
        for begun in [b"".as_slice(), b"GET / HT", &half_request] {
            silent.push(sends(address, begun).await);
        }
        while metrics.connections.get() < 4 {
            sleep(Duration::from_millis(5)).await;
        }
        for _ in 0..3 {
            assert!(receive(&mut sends(address, &ask("/")).await).await.contains("here"));
            // Another one for the place that it left.
            silent.push(sends(address, b"").await);
        }
        // A connection that has made a request keeps its place.
        asked.write_all(&ask("/")).await.unwrap();
        assert!(receive(&mut asked).await.contains("here"));
        assert_eq!(metrics.connections_refused.get(), 0);
    }

    #[tokio::test]
    async fn request_head_is_bounded() {
        let (address, _) = start(2, LONG).await;
        let long = format!("GET /?{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(2 * HEAD_BYTES_MAX));
        let mut stream = sends(address, long.as_bytes()).await;
        let received = receive(&mut stream).await;
        assert!(!received.contains("here"), "{received}");
    }
}
