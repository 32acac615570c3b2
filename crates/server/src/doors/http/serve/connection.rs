//! The connection that a request came over, as far as its handler needs to know: whether its client
//! is still there.

use super::socket::SharedSocket;
use crate::activity::{Activity, Busy};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use rustix::io::ioctl_fionread;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// A client that has missed events is told so, and has so long to read it.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// So much may be sent behind a request that is still being answered. The system keeps little more
/// for a connection: beyond it, the end of the connection would not be seen any more.
const BEHIND_BYTES_MAX: u64 = 32 << 10;

/// For so long, or the connection is closed.
const BEHIND_TIMEOUT: Duration = Duration::from_secs(5);

/// A wait behind which so much stands unread for this long is given up: nobody could tell whether
/// its client is still there.
const BEHIND_WAIT_TIMEOUT: Duration = Duration::from_millis(250);

/// A connection. None if its door takes care of all this itself, by dropping the handler.
#[derive(Clone, Default)]
pub(crate) struct Connection(Option<Arc<Shared>>);

struct Shared {
    activity: Arc<Activity>,
    presence: watch::Receiver<Presence>,
    cut: Arc<Notify>,
}

/// What is known of the client at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Connected,
    /// So much stands unread behind its request that its end could not be seen.
    Unknown,
    /// It has closed the connection or its sending half.
    Closed,
}

/// What the task that serves a connection needs.
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

    /// Its client asks for something, until what is returned is dropped.
    pub(crate) fn begin(&self) -> Option<Busy> {
        self.0.as_ref().map(|shared| shared.activity.begin())
    }

    /// Resolves when the client has closed the connection, also if it had sent more before that
    /// nobody has read.
    pub(crate) async fn closed(&self) {
        self.until(|presence| presence == Presence::Closed).await;
    }

    /// The same, or when the client has sent so much behind its request that its end could not be
    /// seen: for what may wait for long.
    pub(crate) async fn closed_or_unknown(&self) {
        self.until(|presence| presence != Presence::Connected).await;
    }

    async fn until(&self, reached: impl Fn(Presence) -> bool) {
        let Some(shared) = &self.0 else { return pending().await };
        // An error means that nobody serves the connection any more.
        let _ = shared.presence.clone().wait_for(|presence| reached(*presence)).await;
    }

    /// Closes the connection if the client does not read what it is told after `missed`. Without
    /// this, a stream that nobody reads would never be looked at again.
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
    /// Resolves when the connection is to be closed at once. Tells handlers what is known of the
    /// client.
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
    ioctl_fionread(&socket.stream).unwrap_or_default()
}

/// Whether so much is unread that the end of the connection might not be seen: a lot, or anything
/// at all while the client takes nothing of what is written to it, so that nothing is read either.
fn is_stuffed(socket: &SharedSocket, unread: u64) -> bool {
    unread >= BEHIND_BYTES_MAX || (unread > 0 && socket.write_is_stalled())
}

/// Resolves when that has been so for this long, and nothing was read meanwhile.
async fn stuffed(socket: &SharedSocket, unread_for: Duration) {
    // An error means that the runtime stops.
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
/// something left to be read.
async fn closed_by_peer(stream: &TcpStream) {
    // Of all interests only this one asks for the end and not for bytes; there is no urgent data
    // because the socket is not registered for it.
    if stream.ready(tokio::io::Interest::PRIORITY).await.is_err() {
        // The runtime stops.
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
