//! The client for programs that are not asynchronous: each call blocks until it has an answer.
//!
//! A separate thread keeps leases alive, whatever the callers do. Dropping the
//! last handle blocks until everything is released, for at most 1s.
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
//! # fn main() { with_server_blocking(|servers| {
//! use holdfast_client::blocking::Client;
//!
//! let client = Client::connect(&servers)?;
//! let guard = client.lock("seat-12A").wait(Duration::from_secs(30)).acquire()?;
//! println!("token {}", guard.token());
//! guard.release()?;
//! # Ok(()) }) }
//! ```
//!
//! Don't call any of this from asynchronous code, which should use [`crate::Client`]. Calling it
//! within `spawn_blocking` is fine.

mod guard;
mod lock;
mod others;

pub use guard::Guard;
pub use lock::Lock;
pub use others::{Election, Leadership, Observer, Register, Watch};

use crate::error::Error;
use crate::runtime::{self, FLUSH_TIMEOUT};
use crate::servers::IntoServers;
use std::fmt;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// A session with a Holdfast cluster, kept alive by a separate thread. A clone is another handle
/// to the same session.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server_blocking(|servers| {
/// use holdfast_client::blocking::Client;
///
/// let client = Client::connect(&servers)?;
/// let both = client.locks(["account/7", "account/9"]).acquire()?;
/// assert_eq!(both.names().len(), 2);
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    thread: Arc<Thread>,
}

/// The runtime that waits for answers, and its client.
pub(crate) struct Thread {
    runtime: &'static Runtime,
    /// `None` once the last handle is being dropped.
    client: Option<crate::Client>,
}

impl Thread {
    fn client(&self) -> &crate::Client {
        match &self.client {
            Some(client) => client,
            None => unreachable!("it is taken only when the last handle goes"),
        }
    }

    /// Blocks until a future is done.
    fn wait_for<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // The runtime can't be used to wait here: this may be the end of a thread whose
        // thread-locals are gone, or a thread of another runtime.
        if let Some(client) = self.client.take() {
            client.close_blocking(FLUSH_TIMEOUT);
        }
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to one or more servers, such as `http://127.0.0.1:7400`: [`crate::IntoServers`].
    pub fn connect(servers: impl IntoServers) -> Result<Self, Error> {
        Self::with(crate::Client::builder(), servers)
    }

    /// Connects with other settings.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
    /// # fn main() { with_server_blocking(|servers| {
    /// use holdfast_client::blocking;
    ///
    /// let setup = Client::builder().session_ttl(Duration::from_secs(5)).label("till 3");
    /// let client = blocking::Client::with(setup, &servers)?;
    /// # Ok(()) }) }
    /// ```
    pub fn with(builder: crate::Builder, servers: impl IntoServers) -> Result<Self, Error> {
        let runtime = runtime::runtime()?;
        let client = Some(runtime.block_on(builder.connect(servers))?);
        Ok(Self { thread: Arc::new(Thread { runtime, client }) })
    }

    /// A lock to acquire.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(self.thread.clone(), self.thread.client().lock(name))
    }

    /// Several locks to acquire in one step, so that they can't deadlock among themselves.
    pub fn locks<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> Lock {
        Lock::new(self.thread.clone(), self.thread.client().locks(names))
    }

    /// One of this many permits of a semaphore, to acquire.
    pub fn semaphore(&self, name: impl AsRef<[u8]>, permits: u32) -> Lock {
        Lock::new(self.thread.clone(), self.thread.client().semaphore(name, permits))
    }

    /// An election: the holder of the lock with this name is the leader.
    pub fn election(&self, name: impl AsRef<[u8]>) -> Election {
        Election { election: self.thread.client().election(name), thread: self.thread.clone() }
    }

    /// A key of the fenced register.
    pub fn register(&self, key: impl AsRef<[u8]>) -> Register {
        Register { register: self.thread.client().register(key), thread: self.thread.clone() }
    }

    /// Watches one lock, from now on.
    pub fn watch(&self, name: impl AsRef<[u8]>) -> Result<Watch, Error> {
        let watch = self.thread.wait_for(self.thread.client().watch(name))?;
        Ok(Watch { watch, thread: self.thread.clone() })
    }

    /// Watches all locks whose names start with this prefix, from now on.
    pub fn watch_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Watch, Error> {
        let watch = self.thread.wait_for(self.thread.client().watch_prefix(prefix))?;
        Ok(Watch { watch, thread: self.thread.clone() })
    }

    /// Closes the session and ends everything that depends on it.
    pub fn close(self) {
        self.thread.wait_for(self.thread.client().clone().close());
    }
}
