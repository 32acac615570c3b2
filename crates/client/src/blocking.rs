//! The same for programs that are not asynchronous: each call waits for its answer.
//!
//! ```no_run
//! use holdfast_client::blocking::Client;
//!
//! # fn main() -> Result<(), holdfast_client::Error> {
//! let client = Client::connect(["http://127.0.0.1:7400"])?;
//! let guard = client.acquire(client.lock("seat-12A"))?;
//! println!("token {}", guard.token());
//! client.release(guard)?;
//! # Ok(())
//! # }
//! ```

use crate::error::Error;
use crate::guard::Guard;
use crate::lock::Lock;
use tokio::runtime::{Builder, Runtime};

/// A session with a Holdfast cluster, kept alive by a thread of its own.
#[derive(Debug)]
pub struct Client {
    runtime: Runtime,
    client: crate::Client,
}

impl Client {
    /// A client of these servers.
    pub fn connect<S: AsRef<str>>(servers: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        Self::with(crate::Client::builder(), servers)
    }

    /// The same, set up otherwise.
    pub fn with<S: AsRef<str>>(
        builder: crate::Builder,
        servers: impl IntoIterator<Item = S>,
    ) -> Result<Self, Error> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| Error::Unreachable(error.to_string()))?;
        let client = runtime.block_on(builder.connect(servers))?;
        Ok(Self { runtime, client })
    }

    /// A lock, to be taken.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        self.client.lock(name)
    }

    /// Takes it.
    pub fn acquire(&self, lock: Lock) -> Result<Guard, Error> {
        self.runtime.block_on(lock.acquire())
    }

    /// Lets go, with a certain answer.
    pub fn release(&self, guard: Guard) -> Result<(), Error> {
        self.runtime.block_on(guard.release())
    }

    /// Anything else that the asynchronous client can do.
    pub fn wait_for<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// The asynchronous client within.
    pub fn client(&self) -> &crate::Client {
        &self.client
    }
}
