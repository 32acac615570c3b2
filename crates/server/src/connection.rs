//! The connection that a request came over, as far as its handler needs to know: whether its client
//! is still there.

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
    closed: watch::Receiver<bool>,
    cut: Arc<Notify>,
}

/// What the task that serves a connection needs.
pub(crate) struct Watched {
    closed: watch::Sender<bool>,
    cut: Arc<Notify>,
}

impl Connection {
    pub(crate) fn new(activity: Arc<Activity>) -> (Self, Watched) {
        let (closed, receiver) = watch::channel(false);
        let cut = Arc::<Notify>::default();
        let shared = Shared { activity, closed: receiver, cut: cut.clone() };
        (Self(Some(Arc::new(shared))), Watched { closed, cut })
    }

    /// Its client asks for something, until what is returned is dropped.
    pub(crate) fn begin(&self) -> Option<Busy> {
        self.0.as_ref().map(|shared| shared.activity.begin())
    }

    /// Resolves when the client has closed the connection, also if it had sent more before that
    /// nobody has read; and when it has sent so much that its end could not be seen.
    pub(crate) async fn closed(&self) {
        let Some(shared) = &self.0 else { return pending().await };
        // An error means that nobody serves the connection any more.
        let _ = shared.closed.clone().wait_for(|closed| *closed).await;
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
    /// Resolves when the connection is to be closed at once. Tells handlers when the client has
    /// closed it.
    pub(crate) async fn cut(&self, stream: &TcpStream) {
        let cut = self.cut.notified();
        let watching = async {
            tokio::select! {
                () = closed_by_peer(stream) => {}
                () = stuffed(stream, BEHIND_WAIT_TIMEOUT) => {}
            }
            let _ = self.closed.send(true);
            pending().await
        };
        tokio::select! {
            () = cut => {}
            () = watching => {}
            () = stuffed(stream, BEHIND_TIMEOUT) => {}
        }
    }
}

/// Resolves when the other side has sent a lot that nobody has read for this long.
async fn stuffed(stream: &TcpStream, unread_for: Duration) {
    // An error means that the runtime stops.
    while stream.readable().await.is_ok() {
        let before = ioctl_fionread(stream).unwrap_or_default();
        sleep(unread_for).await;
        let now = ioctl_fionread(stream).unwrap_or_default();
        if now == before && now >= BEHIND_BYTES_MAX {
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
