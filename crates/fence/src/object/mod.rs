//! A fence in an object store: S3, GCS, Azure, local disk, memory, through the `object_store`
//! crate.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use holdfast_fence::{Error, Fence, Token, object::ObjectFence};
//! use object_store::memory::InMemory;
//! use std::sync::Arc;
//!
//! // Or AmazonS3Builder::from_env().with_bucket_name("shop").build(), and so on.
//! let fence = ObjectFence::open(Arc::new(InMemory::new())).await?;
//! let token = Token::exclusive(35)?;
//! fence.raise("prices.csv", token).await?;
//! fence.write("prices.csv", token, "tea,3".into()).await?;
//! # Ok::<(), Error>(()) }).unwrap();
//! ```
//!
//! There are two layouts. [`ObjectFence::open`] probes which one the store supports, and the first
//! process to open it decides for all, see `layout.rs`:
//!
//! - **conditional**: a resource is one object, replaced only if it is still the one that was read
//!   (`conditional.rs`);
//! - **versioned**: for local disk, which can create a file only if it is missing, but not replace
//!   it on a condition. A resource is a folder of numbered versions (`versioned.rs`).
//!
//! A store that supports neither is refused. Names that are not valid paths are percent-encoded
//! (`name.rs`), so that no two resources share an object. On a file system that ignores case, don't
//! use names that differ only in case.
//!
//! # Outcomes
//!
//! A store's client retries a put whose reply was lost, and may then run into its own write. So a
//! put's reply is not taken at face value: unless it succeeded at once, the current record tells
//! whether it took effect (`record.rs`), and if that can no longer be known, the error is
//! [`Error::Unknown`].

mod conditional;
mod layout;
mod name;
mod put;
mod record;
mod turns;
mod versioned;

use crate::{Error, Fence, FenceFuture, Fenced, Token, check_resource};
use bytes::Bytes;
use layout::agree;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use put::{probe_layout, unavailable};
use record::{Nonce, Record};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use turns::Turns;

/// How long a call keeps trying while others write to the same resource. Each time it fails,
/// another one has succeeded: with 20ms for a read and a write, about 1,000 others, each in its own
/// process.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest pause between two attempts.
const PAUSE_MS_MAX: u64 = 500;
/// How often to probe a store whose replies are lost.
const PROBES_MAX: u32 = 3;

/// A fence in an object store.
///
/// Calls of this fence and its clones for one resource take turns, so they don't get in each
/// other's way. While other processes write to the same resource, a call keeps trying for 60s, and
/// then fails with [`Error::Busy`].
///
/// Cancel-safe: a call whose future is dropped may still take effect, but never after a later raise
/// or write of the same resource has returned.
#[derive(Debug, Clone)]
pub struct ObjectFence {
    store: Arc<dyn ObjectStore>,
    layout: Layout,
    /// Where the store is, if it was opened with [`ObjectFence::local`].
    folder: Option<PathBuf>,
    turns: Arc<Turns>,
}

/// How a resource is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// One object, replaced on a condition.
    Conditional,
    /// A folder of numbered versions.
    Versioned,
}

/// What a holder requested.
#[derive(Debug, Clone)]
enum Change {
    Raise,
    Write(Bytes),
}

impl Change {
    /// The next version. A raise is a write too, even if the numbers stay the same: a put of the
    /// same holder that is still in flight then fails its condition, and can't land after the raise
    /// has returned.
    fn apply(
        &self,
        resource: &str,
        token: Token,
        before: Option<&Record>,
    ) -> Result<Record, Error> {
        let seen = before.map(|record| record.highest).unwrap_or_default();
        let highest = seen.admit(resource, token)?;
        let value = match self {
            Self::Raise => before.and_then(|record| record.value.clone()),
            Self::Write(value) => Some(value.clone()),
        };
        Ok(Record::after(before, highest, nonce()?, value))
    }
}

impl ObjectFence {
    /// Opens a fence in this store. Probes what the store supports, with a small object under
    /// `holdfast-fence-probe/` that is then removed, and creates `holdfast-fence-layout`, by which
    /// all its users agree on the layout.
    pub async fn open(store: Arc<dyn ObjectStore>) -> Result<Self, Error> {
        let mut probed = None;
        for _ in 0..PROBES_MAX {
            let probe = Path::from(format!("holdfast-fence-probe/{}", nonce()?));
            let layout = probe_layout(&store, &probe).await;
            // A leftover is harmless.
            let _ = store.delete(&probe).await;
            probed = layout?;
            if probed.is_some() {
                break;
            }
        }
        match probed {
            Some(supported) => {
                let layout = agree(&store, supported).await?;
                Ok(Self { store, layout, folder: None, turns: Arc::default() })
            }
            None => Err(Error::Unavailable {
                store: store.to_string(),
                source: "its replies are lost too often to find out what it supports".into(),
            }),
        }
    }

    /// Opens a fence in a folder on local disk, created if it is missing. Writes are synced.
    ///
    /// Processes on this machine may share the folder. It must not be on a network file system,
    /// whose directory listings may be stale.
    pub async fn local(folder: impl AsRef<std::path::Path>) -> Result<Self, Error> {
        let folder = folder.as_ref();
        let unavailable = |source| Error::Unavailable {
            store: format!("the folder {}", folder.display()),
            source,
        };
        std::fs::create_dir_all(folder).map_err(|error| unavailable(error.into()))?;
        let folder = std::fs::canonicalize(folder).map_err(|error| unavailable(error.into()))?;
        let store = LocalFileSystem::new_with_prefix(&folder)
            .map_err(|error| unavailable(error.into()))?
            .with_fsync(true);
        let fence = Self::open(Arc::new(store)).await?;
        Ok(Self { folder: Some(folder), ..fence })
    }

    /// The layout in use.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    async fn change(&self, resource: &str, token: Token, change: Change) -> Result<Fenced, Error> {
        check_resource(resource)?;
        let ends = Instant::now() + TIMEOUT;
        let busy = |reason| Err(Error::Busy { resource: resource.into(), reason });
        let Ok(_turn) = tokio::time::timeout_at(ends, self.turns.wait(resource)).await else {
            return busy(format!("earlier calls for it have taken longer than {TIMEOUT:?}"));
        };
        let mut attempt: u32 = 0;
        loop {
            let done = match self.layout {
                Layout::Conditional => self.replace(resource, token, &change).await?,
                Layout::Versioned => self.append(resource, token, &change).await?,
            };
            if let Some(record) = done {
                return Ok(record.into_fenced());
            }
            attempt += 1;
            if Instant::now() >= ends {
                return busy(format!(
                    "other writers were faster {attempt} times in {TIMEOUT:?}, so check that all of \
                     them hold the lock"
                ));
            }
            let longest_ms = (1 << attempt.min(10)).min(PAUSE_MS_MAX);
            let pause = Duration::from_millis(nonce()?.jitter_ms(longest_ms));
            tokio::time::sleep_until(ends.min(Instant::now() + pause)).await;
        }
    }
}

impl Fence for ObjectFence {
    fn raise<'a>(&'a self, resource: &'a str, token: Token) -> FenceFuture<'a, Fenced> {
        Box::pin(self.change(resource, token, Change::Raise))
    }

    fn write<'a>(&'a self, resource: &'a str, token: Token, value: Bytes) -> FenceFuture<'a, ()> {
        Box::pin(async move {
            self.change(resource, token, Change::Write(value)).await?;
            Ok(())
        })
    }

    fn read<'a>(&'a self, resource: &'a str) -> FenceFuture<'a, Fenced> {
        Box::pin(async move {
            check_resource(resource)?;
            let record = match self.layout {
                Layout::Conditional => self.current(resource).await?.map(|(record, _)| record),
                Layout::Versioned => self.latest(resource).await?,
            };
            Ok(record.map(Record::into_fenced).unwrap_or_default())
        })
    }
}

fn nonce() -> Result<Nonce, Error> {
    Nonce::random().map_err(|error| Error::Unavailable {
        store: "the system's random number generator".into(),
        source: error.to_string().into(),
    })
}

fn damaged(resource: &str, reason: &str) -> Error {
    Error::Damaged { resource: resource.into(), reason: reason.into() }
}
