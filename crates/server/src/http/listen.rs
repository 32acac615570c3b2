//! Connections: how many there may be, and how long they may keep silent.
//!
//! HTTP/1 and HTTP/2 come in at the same port, hence JSON and gRPC too.

use super::begins::Begins;
use crate::failure::{Failure, Kind};
use crate::metrics::Metrics;
use crate::newcomers::Newcomer;
use crate::sockets::{self, ALIVE_AFTER, Crowd};
use axum::Router;
use axum::http::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tonic::codegen::Service;

/// Requests at once on one connection of HTTP/2.
const STREAMS_MAX: u32 = 1_024;

/// The longest head of a request: a name in a query, percent-encoded, and some headers.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// What a connection may do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    connections_max: usize,
    /// How long the head of a request may take to come, and how long an idle connection is kept.
    head_patience: Duration,
}

impl Bounds {
    /// As many connections as this process may have.
    pub(crate) fn of_process() -> Self {
        let connections_max = sockets::connections_max();
        Self { connections_max, head_patience: Duration::from_secs(30) }
    }
}

/// Serves until the task is dropped, and every connection with it.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    metrics: Arc<Metrics>,
) -> io::Result<()> {
    let crowd = Crowd {
        connections_max: bounds.connections_max,
        open: metrics.connections.clone(),
        refused: metrics.connections_refused.clone(),
        no_room: no_room().into_bytes(),
    };
    let talk = |stream, newcomer| {
        let service = Arriving { router: router.clone(), newcomer };
        talk(stream, service, bounds.head_patience)
    };
    sockets::serve(listener, crowd, talk).await
}

/// Notes that a connection has asked for something.
#[derive(Clone)]
struct Arriving {
    router: Router,
    newcomer: Arc<Newcomer>,
}

impl<B> Service<Request<B>> for Arriving
where
    Router: Service<Request<B>>,
{
    type Response = <Router as Service<Request<B>>>::Response;
    type Error = <Router as Service<Request<B>>>::Error;
    type Future = <Router as Service<Request<B>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<B>>::poll_ready(&mut self.router, context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.newcomer.arrived();
        self.router.call(request)
    }
}

async fn talk(stream: TcpStream, service: Arriving, head_patience: Duration) {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(head_patience)
        .max_buf_size(HEAD_BYTES_MAX);
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(ALIVE_AFTER)
        .keep_alive_timeout(ALIVE_AFTER)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32);
    let stream = Begins::within(head_patience, stream);
    let service = TowerToHyperService::new(service);
    // Whatever went wrong, the peer has gone or talks nonsense; nobody else needs to know.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

/// Says that there are too many connections.
fn no_room() -> String {
    let body = Failure::new(
        Kind::Unavailable,
        "busy",
        "this node has too many connections",
        "close those that you don't need, or ask another node",
    );
    let body = super::failure::shown(&body).to_string();
    let length = body.len();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nretry-after: 1\r\nconnection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::{sleep, timeout};

    /// Nothing here takes so long unless it is broken.
    const LONG: Duration = Duration::from_secs(30);

    /// A server of one page.
    async fn start(bounds: Bounds) -> (SocketAddr, Arc<Metrics>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(|| async { "here" }));
        let metrics = Arc::new(Metrics::new());
        tokio::spawn(serve(listener, router, bounds, metrics.clone()));
        (address, metrics)
    }

    async fn sends(address: SocketAddr, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    }

    /// All that is said until the other side hangs up.
    async fn hears(stream: &mut TcpStream) -> String {
        let mut said = Vec::new();
        let read = timeout(LONG, stream.read_to_end(&mut said)).await;
        // Hanging up hard is hanging up.
        let _ = read.expect("the connection is closed");
        String::from_utf8_lossy(&said).into_owned()
    }

    /// The room of every connection is given back.
    async fn all_gone(metrics: &Metrics) {
        let gone = async {
            while metrics.connections.get() > 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, gone).await.expect("no connection is counted any more");
    }

    #[tokio::test]
    async fn silence_ends_a_connection() {
        let head_patience = Duration::from_millis(100);
        let (address, metrics) = start(Bounds { connections_max: 10, head_patience }).await;
        // Nothing; half of what tells HTTP/2; half a head of HTTP/1.
        let half_head = b"GET / HTTP/1.1\r\nHost: somewhere\r\nX-More: ";
        for begun in [b"".as_slice(), b"PRI * HTTP/2.0", half_head] {
            let mut stream = sends(address, begun).await;
            let said = hears(&mut stream).await;
            assert!(!said.contains("here"), "{said}");
        }
        // An idle one after its answer.
        let mut stream = sends(address, b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n").await;
        assert!(hears(&mut stream).await.contains("here"));
        all_gone(&metrics).await;
    }

    #[tokio::test]
    async fn too_many_connections_are_told_so() {
        let (address, metrics) = start(Bounds { connections_max: 2, head_patience: LONG }).await;
        let mut kept = Vec::new();
        for _ in 0..2 {
            let mut stream = sends(address, b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n").await;
            let mut first = [0; 12];
            timeout(LONG, stream.read_exact(&mut first)).await.unwrap().unwrap();
            assert_eq!(&first, b"HTTP/1.1 200");
            kept.push(stream);
        }
        let mut third = sends(address, b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n").await;
        let said = hears(&mut third).await;
        assert!(said.starts_with("HTTP/1.1 503") && said.contains("too many"), "{said}");
        assert_eq!(metrics.connections_refused.get(), 1);

        drop(kept);
        all_gone(&metrics).await;
        let mut next =
            sends(address, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        assert!(hears(&mut next).await.contains("here"));
    }

    /// As many silent connections as there was room for once locked everybody else out for half a
    /// minute, again and again.
    #[tokio::test]
    async fn silent_connections_make_room_for_those_that_ask() {
        let (address, metrics) = start(Bounds { connections_max: 4, head_patience: LONG }).await;
        let mut asked = sends(address, b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n").await;
        let mut first = [0; 12];
        timeout(LONG, asked.read_exact(&mut first)).await.unwrap().unwrap();
        let mut silent = Vec::new();
        for begun in [b"".as_slice(), b"GET / HT", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
            silent.push(sends(address, begun).await);
        }
        while metrics.connections.get() < 4 {
            sleep(Duration::from_millis(5)).await;
        }
        for _ in 0..3 {
            let ask = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            assert!(hears(&mut sends(address, ask).await).await.contains("here"));
            // One more for the place that it left.
            silent.push(sends(address, b"").await);
        }
        // Who has asked before keeps its place.
        asked.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
        assert!(hears(&mut asked).await.contains("here"));
        assert_eq!(metrics.connections_refused.get(), 0);
    }

    #[tokio::test]
    async fn a_head_has_a_bound() {
        let (address, _) = start(Bounds { connections_max: 2, head_patience: LONG }).await;
        let long = format!("GET /?{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(2 * HEAD_BYTES_MAX));
        let mut stream = sends(address, long.as_bytes()).await;
        let said = hears(&mut stream).await;
        assert!(!said.contains("here"), "{said}");
    }
}
