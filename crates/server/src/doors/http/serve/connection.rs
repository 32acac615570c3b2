//! The connection that a request came over, as far as its handler needs to know: whether the client
//! is still there.

use super::socket::SharedSocket;
use crate::activity::{Activity, Busy};
use crate::stream::Stream;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// How long a client that has missed events has to read the notice of it.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// How much may be sent behind a request that is still being answered. The kernel buffers little
/// more per connection: beyond that, its end would no longer be noticed.
const BEHIND_BYTES_MAX: u64 = 32 << 10;

/// If this much stays unread for this long, the connection is closed.
const BEHIND_TIMEOUT: Duration = Duration::from_secs(5);

/// A wait is given up if so much stays unread behind it for this long, because there is no telling
/// whether the client is still there.
const BEHIND_WAIT_TIMEOUT: Duration = Duration::from_millis(250);

/// A client's connection. `None` for a door that does all this itself, by dropping the handler.
#[derive(Clone, Default)]
pub(crate) struct Connection(Option<Arc<Shared>>);

struct Shared {
    activity: Arc<Activity>,
    presence: watch::Receiver<Presence>,
    cut: Arc<Notify>,
}

/// What is known about the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Connected,
    /// So much is unread behind its request that its end might not be noticed.
    Unknown,
    /// It has closed the connection, or its sending half.
    Closed,
}

/// The side of the task that serves the connection.
pub(crate) struct Watched {
    presence: watch::Sender<Presence>,
    cut: Arc<Notify>,
}

impl Connection {
    pub(crate) fn new(activity: Arc<Activity>) -> (Self, Watched) {
        let (presence, receiver) = watch::channel(Presence::Connected);
        let cut = Arc::<Notify>::default();
        let shared = Shared { activity, presence: receiver, cut: cut.clone() };
        (Self(Some(Arc::new(shared))), Watched { presence, cut })
    }

    /// Marks the connection as busy until the result is dropped.
    pub(crate) fn begin(&self) -> Option<Busy> {
        self.0.as_ref().map(|shared| shared.activity.begin())
    }

    /// Resolves when the client has closed the connection, even if unread data precedes the end.
    pub(crate) async fn closed(&self) {
        self.until(|presence| presence == Presence::Closed).await;
    }

    /// Like [`Connection::closed`], but also resolves when the client has sent so much behind its
    /// request that its end might not be noticed. For requests that may wait for long.
    pub(crate) async fn closed_or_unknown(&self) {
        self.until(|presence| presence != Presence::Connected).await;
    }

    async fn until(&self, reached: impl Fn(Presence) -> bool) {
        let Some(shared) = &self.0 else { return pending().await };
        // An error means that the connection is no longer being served.
        let _ = shared.presence.clone().wait_for(|presence| reached(*presence)).await;
    }

    /// Closes the connection if the client does not read the notice it is sent after `missed`.
    /// Without this, a stream that nobody reads would never be polled again.
    pub(crate) fn cut_unless_read(
        &self,
        missed: impl Future<Output = ()> + Send + 'static,
    ) -> CutUnlessRead {
        let shared = self.0.clone();
        CutUnlessRead(tokio::spawn(async move {
            missed.await;
            sleep(READ_TIMEOUT).await;
            if let Some(shared) = shared {
                shared.cut.notify_one();
            }
        }))
    }
}

impl Watched {
    /// Resolves when the connection must be closed immediately. Until then, tells handlers what is
    /// known about the client.
    pub(crate) async fn cut(&self, socket: &SharedSocket) {
        let watching = async {
            tokio::select! {
                () = closed_by_peer(&socket.stream) => {}
                never = self.watch_unread(socket) => match never {},
            }
            let _ = self.presence.send(Presence::Closed);
            pending().await
        };
        tokio::select! {
            () = self.cut.notified() => {}
            () = watching => {}
            () = stuffed(socket, BEHIND_TIMEOUT) => {}
        }
    }

    async fn watch_unread(&self, socket: &SharedSocket) -> Infallible {
        loop {
            stuffed(socket, BEHIND_WAIT_TIMEOUT).await;
            let _ = self.presence.send(Presence::Unknown);
            while is_stuffed(socket, unread(socket)) {
                sleep(BEHIND_WAIT_TIMEOUT).await;
            }
            let _ = self.presence.send(Presence::Connected);
        }
    }
}

fn unread(socket: &SharedSocket) -> u64 {
    socket.stream.unread()
}

/// Whether so much is unread that the end of the connection might not be noticed: a lot, or
/// anything at all while the client accepts no data, because then nothing is read either.
fn is_stuffed(socket: &SharedSocket, unread: u64) -> bool {
    unread >= BEHIND_BYTES_MAX || (unread > 0 && socket.write_is_stalled())
}

/// Resolves when [`is_stuffed`] has held for `unread_for` and nothing was read meanwhile.
async fn stuffed(socket: &SharedSocket, unread_for: Duration) {
    // An error means that the runtime is shutting down.
    while socket.stream.readable().await.is_ok() {
        let before = unread(socket);
        sleep(unread_for).await;
        let now = unread(socket);
        if now == before && is_stuffed(socket, now) {
            return;
        }
    }
    pending().await
}

/// Resolves when the other side has closed the connection or its sending half, even if there is
/// unread data.
async fn closed_by_peer(stream: &Stream) {
    // This is the only interest that reports the end but not readable data; urgent data is not
    // reported, because the socket is not registered for it.
    if stream.ready(tokio::io::Interest::PRIORITY).await.is_err() {
        // The runtime is shutting down.
        pending().await
    }
}

/// Dropped when the client has read to the end: then there is nothing to cut.
pub(crate) struct CutUnlessRead(JoinHandle<()>);

impl Drop for CutUnlessRead {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<S: Sync> FromRequestParts<S> for Connection {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}
