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

    async fn ask(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        stream.write_all(head).await.unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        said
    }

    #[tokio::test]
    async fn beyond_the_bound_a_request_is_told_so_and_then_there_is_room_again() {
        let (begun, mut begins) = mpsc::channel(1);
        let turn = Arc::new(Semaphore::new(0));
        let waits = turn.clone();
        let handler = move || async move {
            begun.send(()).await.unwrap();
            waits.acquire().await.unwrap().forget();
            "served"
        };
        let room = Arc::new(Semaphore::new(1));
        let router = Router::new().route("/", get(handler)).layer(from_fn_with_state(room, check));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let first = tokio::spawn(ask(address));
        begins.recv().await.unwrap();
        let second = ask(address).await;
        assert!(second.starts_with("HTTP/1.1 503") && second.contains("busy"), "{second}");
        turn.add_permits(2);
        assert!(first.await.unwrap().contains("served"));
        assert!(ask(address).await.contains("served"));
    }
}
