//! The threads that sessions run on. They belong to the client, so that a session outlives the
//! program's runtime: guards that are dropped while that runtime shuts down are still released.

use crate::driver::Order;
use crate::error::Error;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc as sync_mpsc};
use std::thread::available_parallelism;
use std::time::Duration;
use tokio::runtime::{self, Handle, Runtime};
use tokio::sync::{mpsc, oneshot};

/// The number of threads that all sessions of the process share. One is enough for any ordinary
/// program; a load generator with thousands of sessions keeps several busy.
const THREADS_MAX: usize = 4;

/// How long the shutdown of a runtime waits until everything is released.
pub(crate) const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

thread_local! {
    static IS_OWN_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// The runtime that all sessions of this process run on. It never ends.
pub(crate) fn runtime() -> Result<&'static Runtime, Error> {
    static RUNTIME: Mutex<Option<&'static Runtime>> = Mutex::new(None);
    let mut started = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = *started {
        return Ok(runtime);
    }
    let threads = available_parallelism().map_or(1, |cores| cores.get().min(THREADS_MAX));
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("holdfast")
        .on_thread_start(|| IS_OWN_THREAD.set(true))
        .enable_all()
        .build()
        .map_err(|error| Error::Unreachable(format!("cannot start a thread: {error}")))?;
    Ok(started.insert(Box::leak(Box::new(runtime))))
}

/// The runtime that a client was connected from.
#[derive(Debug, Default)]
pub(crate) struct HomeRuntime {
    /// It is shutting down, and the process will probably follow.
    gone: AtomicBool,
    /// A flush has timed out: waiting again would be pointless.
    hopeless: AtomicBool,
}

impl HomeRuntime {
    /// If the home runtime is gone, blocks until the driver has released everything that was
    /// dropped so far, for a bounded time. Otherwise returns at once, and the driver does it later.
    pub(crate) fn flush(&self, orders: &mpsc::UnboundedSender<Order>) {
        let waits = self.gone.load(Ordering::Acquire) && !self.hopeless.load(Ordering::Acquire);
        // The driver can't wait for itself.
        if !waits || IS_OWN_THREAD.get() {
            return;
        }
        let (flushed, wait) = sync_mpsc::channel();
        if orders.send(Order::Flush(flushed)).is_ok() {
            self.wait(&wait);
        }
    }

    fn wait(&self, flushed: &sync_mpsc::Receiver<()>) {
        let timeout = Err(sync_mpsc::RecvTimeoutError::Timeout);
        if flushed.recv_timeout(FLUSH_TIMEOUT) == timeout {
            self.hopeless.store(true, Ordering::Release);
        }
    }
}

/// Held by a session's driver while it runs.
#[derive(Debug)]
pub(crate) struct RunningDriver {
    // In this order: an anchor that is woken by the second must not wait for the first.
    _ended: sync_mpsc::Sender<()>,
    _wakes: oneshot::Sender<()>,
}

/// Lives in the home runtime and is dropped when that shuts down: the last moment at which it is
/// possible to wait until the session has released what was dropped.
struct Anchor {
    home: Arc<HomeRuntime>,
    orders: mpsc::WeakUnboundedSender<Order>,
    ended: sync_mpsc::Receiver<()>,
}

impl Drop for Anchor {
    fn drop(&mut self) {
        self.home.gone.store(true, Ordering::Release);
        match self.orders.upgrade() {
            Some(orders) => self.home.flush(&orders),
            // There are no handles left: the session is being closed.
            None => self.home.wait(&self.ended),
        }
    }
}

/// Ties a session to the runtime that this is called from, if there is one.
pub(crate) fn anchor(
    orders: mpsc::WeakUnboundedSender<Order>,
) -> (Arc<HomeRuntime>, RunningDriver) {
    let home = Arc::new(HomeRuntime::default());
    let (ended, wait_ended) = sync_mpsc::channel();
    let (wakes, woken) = oneshot::channel();
    if let Ok(handle) = Handle::try_current() {
        let anchor = Anchor { home: home.clone(), orders, ended: wait_ended };
        handle.spawn(async move {
            let _anchor = anchor;
            let _ = woken.await;
        });
    }
    (home, RunningDriver { _ended: ended, _wakes: wakes })
}
