//! HTTP connections: how many there may be, and how long they may take.
//!
//! A request's head must arrive within twenty seconds, and a connection may be idle for as long. When all
//! places are taken, the connection that has been idle longest makes room for a new one; if none is idle,
//! the oldest that only listens to events does, because a browser connects again by itself. Only if every
//! connection is in the middle of a request is a new one refused.

use axum::Router;
use axum::http::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeMap;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower_service::Service;

/// How long a request's head may take to arrive, and how long a connection may be idle. Not shorter: a client
/// that uses a connection again at the moment when it is closed gets an error.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);

/// A request has a short path and few headers.
const HEAD_BYTES_MAX: usize = 32 << 10;

/// A connection costs about 20 KB, so all of them stay near 40 MB.
const CONNECTIONS_MAX: u64 = 2_000;

/// Files that are kept for the database, the locks and an embedded Holdfast; half of all if there are few.
const FILES_KEPT: u64 = 512;

/// How long to wait before accepting again when out of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// Waits for a request, or for the rest of its head.
    Idle,
    /// Has a request that is not answered yet.
    Request,
    /// Listens to events without an end.
    Events,
}

struct Entry {
    doing: Doing,
    evicted: Arc<Notify>,
}

/// All open connections, oldest activity first.
#[derive(Default)]
struct Places {
    entries: BTreeMap<u64, Entry>,
    next: u64,
}

impl Places {
    fn enter(&mut self, doing: Doing, evicted: Arc<Notify>) -> u64 {
        self.next += 1;
        self.entries.insert(self.next, Entry { doing, evicted });
        self.next
    }

    /// Moves a connection to the end; `None` if it was evicted.
    fn change(&mut self, place: u64, doing: Doing) -> Option<u64> {
        let Entry { evicted, .. } = self.entries.remove(&place)?;
        Some(self.enter(doing, evicted))
    }

    /// Makes room for one more; false if every connection has a request.
    fn make_room(&mut self, max: usize) -> bool {
        if self.entries.len() < max {
            return true;
        }
        let oldest = |doing| {
            let mut entries = self.entries.iter();
            entries.find(|(_, entry)| entry.doing == doing).map(|(place, _)| *place)
        };
        let Some(place) = oldest(Doing::Idle).or_else(|| oldest(Doing::Events)) else {
            return false;
        };
        if let Some(entry) = self.entries.remove(&place) {
            entry.evicted.notify_one();
        }
        true
    }
}

/// One connection's place among the others; it is free again when this is dropped.
struct Place {
    places: Arc<Mutex<Places>>,
    /// `None` once it was evicted.
    number: Mutex<Option<u64>>,
}

impl Place {
    fn change(&self, doing: Doing) {
        let mut number = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        *number = number.and_then(|place| locked(&self.places).change(place, doing));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let number = self.number.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = number.take() {
            locked(&self.places).entries.remove(&place);
        }
    }
}

fn locked(places: &Mutex<Places>) -> MutexGuard<'_, Places> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many connections this process may have. Raises the limit on open files first: it is often 1,024.
pub(crate) fn connections_max() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let files = (if raised { maximum } else { current }).unwrap_or(u64::MAX);
    usize::try_from(CONNECTIONS_MAX.min(files - FILES_KEPT.min(files / 2))).unwrap_or(1)
}

/// Serves until `stop` changes, and then until every request is answered.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    max: usize,
    mut stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Mutex::new(Places::default()));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = stop.changed() => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                if error.kind() != io::ErrorKind::ConnectionAborted {
                    tracing::warn!("can't accept connections for now: {error}");
                    sleep(ACCEPT_RETRY).await;
                }
                continue;
            }
        };
        let evicted = Arc::new(Notify::new());
        let number = {
            let mut open = locked(&places);
            open.make_room(max).then(|| open.enter(Doing::Idle, evicted.clone()))
        };
        if number.is_none() {
            connections.spawn(refuse(stream));
            continue;
        }
        let place = Arc::new(Place { places: places.clone(), number: Mutex::new(number) });
        connections.spawn(talk(stream, router.clone(), place, evicted, stop.clone()));
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn refuse(mut stream: TcpStream) {
    let body = r#"{"code":"unavailable","hint":"try again","message":"too many connections"}"#;
    let head = format!(
        "HTTP/1.1 {} Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        StatusCode::SERVICE_UNAVAILABLE.as_u16(),
        body.len()
    );
    let _ = tokio::time::timeout(Duration::from_secs(1), async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.shutdown().await
    })
    .await;
}

async fn talk(
    stream: TcpStream,
    router: Router,
    place: Arc<Place>,
    evicted: Arc<Notify>,
    mut stop: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let mut http = auto::Builder::new(TokioExecutor::new()).http1_only();
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX);
    let service = TowerToHyperService::new(Watched { router, place });
    let mut serving = pin!(http.serve_connection(TokioIo::new(stream), service));
    // Whatever went wrong, the client is gone or sent garbage; nobody else needs to know.
    tokio::select! {
        _ = serving.as_mut() => return,
        () = evicted.notified() => return,
        _ = stop.changed() => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = serving.await;
}

/// The router, noting what its connection is doing.
#[derive(Clone)]
struct Watched {
    router: Router,
    place: Arc<Place>,
}

type Answering<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl<B> Service<Request<B>> for Watched
where
    Router: Service<Request<B>, Future: Send + 'static>,
{
    type Response = <Router as Service<Request<B>>>::Response;
    type Error = <Router as Service<Request<B>>>::Error;
    type Future = Answering<Self::Response, Self::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<B>>::poll_ready(&mut self.router, context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let after = if request.uri().path() == "/events" { Doing::Events } else { Doing::Idle };
        self.place.change(Doing::Request);
        let (answering, place) = (self.router.call(request), self.place.clone());
        Box::pin(async move {
            let answered = answering.await;
            place.change(after);
            answered
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connections_make_room_first_then_listeners_and_requests_never() {
        let mut places = Places::default();
        let signals: Vec<_> = (0..3).map(|_| Arc::new(Notify::new())).collect();
        let numbers: Vec<u64> =
            signals.iter().map(|signal| places.enter(Doing::Idle, signal.clone())).collect();
        assert!(places.make_room(4), "there is a place");
        assert_eq!(places.entries.len(), 3);
        let asking = places.change(numbers[0], Doing::Request).unwrap();
        let listening = places.change(numbers[1], Doing::Events).unwrap();
        assert!(places.make_room(3));
        assert!(!places.entries.contains_key(&numbers[2]), "the idle one goes first");
        places.enter(Doing::Request, Arc::new(Notify::new()));
        assert!(places.make_room(3));
        assert!(!places.entries.contains_key(&listening), "then the one that listens");
        assert_eq!(places.change(listening, Doing::Idle), None);
        assert!(places.entries.contains_key(&asking));
        assert!(!places.make_room(2), "and one with a request stays");
    }
}
