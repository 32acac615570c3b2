//! The library's own threads: leases are renewed even while the program's runtime is blocked, and a
//! guard that is dropped while that runtime shuts down is still released.

use crate::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;

/// How long the shutdown of a program's runtime waits for dropped guards to be released.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The runtime that this whole library runs on. It is never shut down.
pub(crate) fn handle() -> Result<&'static Handle, Error> {
    static RUNTIME: Mutex<Option<&'static Runtime>> = Mutex::new(None);
    let mut started = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = *started {
        return Ok(runtime.handle());
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("holdfast-locks")
        .enable_all()
        .build()
        .map_err(|error| Error::Unreachable(format!("cannot start a thread: {error}")))?;
    Ok(started.insert(Box::leak(Box::new(runtime))).handle())
}

/// Runs a future on the library's threads. It keeps running if the caller is dropped.
pub(crate) async fn run<T: Send + 'static>(
    future: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let task = handle()?.spawn(future);
    task.await.unwrap_or_else(|error| Err(Error::Unreachable(format!("internal error: {error}"))))
}

/// What is still in progress in the background, for one `Locks` and its clones.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    /// Releases of dropped guards.
    pending: Mutex<usize>,
    changed: Condvar,
    /// Those, and acquires and releases whose caller may have given up on them.
    in_progress: watch::Sender<usize>,
    /// The runtime that `connect` was called from is shutting down, and the process may exit soon.
    home_gone: AtomicBool,
    /// Closed when this is dropped: then the anchor has nothing to wait for any more.
    anchored: watch::Sender<()>,
}

impl Releases {
    /// Ties the releases to the runtime that this is called from: its shutdown waits for them.
    pub(crate) fn of_current_runtime() -> Arc<Self> {
        let releases = Arc::new(Self::default());
        match Handle::try_current() {
            Ok(home) => {
                let anchor = Anchor(Arc::downgrade(&releases));
                let mut anchored = releases.anchored.subscribe();
                home.spawn(async move {
                    let _anchor = anchor;
                    while anchored.changed().await.is_ok() {}
                });
            }
            Err(_) => releases.home_gone.store(true, Ordering::Release),
        }
        releases
    }

    /// Runs the release of a dropped guard in the background. Outside a runtime, or once the home
    /// runtime is gone, waits for it for a bounded time.
    pub(crate) fn start(self: &Arc<Self>, release: impl Future<Output = ()> + Send + 'static) {
        let Ok(handle) = handle() else { return };
        *self.pending() += 1;
        let (releases, in_progress) = (self.clone(), self.begin());
        handle.spawn(async move {
            let (_ended, _under_way) = (Ended(releases), in_progress);
            release.await;
        });
        let inside_own_thread = Handle::try_current().is_ok_and(|own| own.id() == handle.id());
        if self.home_gone.load(Ordering::Acquire) && !inside_own_thread {
            self.wait();
        }
    }

    /// Counts something as in progress until the returned value is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> InProgress {
        self.in_progress.send_modify(|tasks| *tasks += 1);
        InProgress(self.clone())
    }

    /// Resolves when nothing is in progress.
    pub(crate) async fn all_ended(&self) {
        let mut in_progress = self.in_progress.subscribe();
        // This can't fail: `self` keeps the sender alive.
        let _ = in_progress.wait_for(|tasks| *tasks == 0).await;
    }

    fn wait(&self) {
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        let mut pending = self.pending();
        while *pending > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(pending, left);
            pending = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn pending(&self) -> std::sync::MutexGuard<'_, usize> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts as in progress until it is dropped.
pub(crate) struct InProgress(Arc<Releases>);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.in_progress.send_modify(|tasks| *tasks -= 1);
    }
}

struct Ended(Arc<Releases>);

impl Drop for Ended {
    fn drop(&mut self) {
        *self.0.pending() -= 1;
        self.0.changed.notify_all();
    }
}

/// Lives in the home runtime, and is dropped when that shuts down or when it is no longer needed.
struct Anchor(Weak<Releases>);

impl Drop for Anchor {
    fn drop(&mut self) {
        let Some(releases) = self.0.upgrade() else { return };
        releases.home_gone.store(true, Ordering::Release);
        releases.wait();
    }
}
