//! A fence in an object store: S3, GCS, Azure, local disk, memory, through the `object_store` crate.
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
//! There are two layouts; [`ObjectFence::open`] probes which one the store supports:
//!
//! - **conditional**: a resource is one object, replaced only if it is still the one that was read
//!   (`conditional.rs`);
//! - **versioned**: for local disk, which can create a file only if it is missing, but not replace it
//!   on a condition. A resource is a folder of numbered versions (`versioned.rs`).
//!
//! A store that supports neither is refused.

mod conditional;
mod record;
mod versioned;

use crate::{Error, Fence, FenceFuture, Fenced, Token, check_resource};
use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutResult,
};
use record::{Nonce, Record};
use std::sync::Arc;
use std::time::Duration;

/// How often to retry when others write to the same resource. A lock admits one holder at a time, so
/// more than a few conflicts mean that the lock is not used.
const ATTEMPTS_MAX: u32 = 50;
/// The longest pause between two attempts.
const PAUSE_MS_MAX: u64 = 200;

/// A fence in an object store.
#[derive(Debug, Clone)]
pub struct ObjectFence {
    store: Arc<dyn ObjectStore>,
    layout: Layout,
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

/// What a holder asked for.
#[derive(Debug, Clone)]
enum Change {
    Raise,
    Write(Bytes),
}

impl Change {
    fn value(&self, before: Option<&Record>) -> Option<Bytes> {
        match self {
            Self::Raise => before.and_then(|record| record.value.clone()),
            Self::Write(value) => Some(value.clone()),
        }
    }
}

impl ObjectFence {
    /// Probes what the store supports, with a small object under `holdfast-fence-probe/` that is then
    /// removed. The result depends on the store alone, so all its users agree on the layout.
    pub async fn open(store: Arc<dyn ObjectStore>) -> Result<Self, Error> {
        let probe = Path::from(format!("holdfast-fence-probe/{}", nonce()?));
        let layout = probe_layout(&store, &probe).await;
        // A leftover is harmless.
        let _ = store.delete(&probe).await;
        Ok(Self { layout: layout?, store })
    }

    /// A folder on local disk, created if it is missing. Writes are synced.
    ///
    /// Processes of this machine may share it. It must not be on a network file system, whose
    /// directory listings may be stale.
    pub async fn local(folder: impl AsRef<std::path::Path>) -> Result<Self, Error> {
        let unavailable = |source| Error::Unavailable { store: "the folder".into(), source };
        std::fs::create_dir_all(&folder).map_err(|error| unavailable(error.into()))?;
        let store = LocalFileSystem::new_with_prefix(folder)
            .map_err(|error| unavailable(error.into()))?
            .with_fsync(true);
        Self::open(Arc::new(store)).await
    }

    /// The layout in use.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    async fn pass(&self, resource: &str, token: Token, change: Change) -> Result<Fenced, Error> {
        check_resource(resource)?;
        for attempt in 0..ATTEMPTS_MAX {
            let done = match self.layout {
                Layout::Conditional => self.replace(resource, token, &change).await?,
                Layout::Versioned => self.append(resource, token, &change).await?,
            };
            if let Some(fenced) = done {
                return Ok(fenced);
            }
            let longest_ms = (1 << attempt.min(10)).min(PAUSE_MS_MAX);
            let pause = Duration::from_millis(nonce()?.low_bits() % longest_ms);
            tokio::time::sleep(pause).await;
        }
        Err(Error::Busy { resource: resource.into() })
    }

    async fn put(&self, path: &Path, record: &Record, mode: PutMode) -> Put {
        put(&self.store, path, record.encode(), mode).await
    }
}

impl Fence for ObjectFence {
    fn raise<'a>(&'a self, resource: &'a str, token: Token) -> FenceFuture<'a, Fenced> {
        Box::pin(self.pass(resource, token, Change::Raise))
    }

    fn write<'a>(&'a self, resource: &'a str, token: Token, value: Bytes) -> FenceFuture<'a, ()> {
        Box::pin(async move {
            self.pass(resource, token, Change::Write(value)).await?;
            Ok(())
        })
    }

    fn read<'a>(&'a self, resource: &'a str) -> FenceFuture<'a, Fenced> {
        Box::pin(async move {
            check_resource(resource)?;
            let record = match self.layout {
                Layout::Conditional => self.current(resource).await?.map(|(record, _)| record),
                Layout::Versioned => self.latest(resource).await?.map(|(_, record)| record),
            };
            Ok(record.map(Record::into_fenced).unwrap_or_default())
        })
    }
}

/// The outcome of a conditional put.
enum Put {
    Done(PutResult),
    /// The condition did not hold.
    Unmet,
    /// The store does not support the condition.
    Unsupported(String),
    /// It may or may not have been written.
    Unknown(StoreError),
    /// It was not written.
    Failed(StoreError),
}

async fn put(store: &Arc<dyn ObjectStore>, path: &Path, bytes: Vec<u8>, mode: PutMode) -> Put {
    let options = PutOptions { mode, ..PutOptions::default() };
    match store.put_opts(path, bytes.into(), options).await {
        Ok(result) => Put::Done(result),
        Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => Put::Unmet,
        Err(error @ (StoreError::NotImplemented { .. } | StoreError::NotSupported { .. })) => {
            Put::Unsupported(error.to_string())
        }
        // The reply of S3 look-alikes without conditional writes.
        Err(error) if error.to_string().contains("NotImplemented") => {
            Put::Unsupported(error.to_string())
        }
        Err(
            error @ (StoreError::PermissionDenied { .. }
            | StoreError::Unauthenticated { .. }
            | StoreError::NotFound { .. }
            | StoreError::InvalidPath { .. }),
        ) => Put::Failed(error),
        Err(error) if is_full(&error) => Put::Failed(error),
        Err(error) => Put::Unknown(error),
    }
}

/// Some stores accept a condition and ignore it, so each is checked to fail when it should.
async fn probe_layout(store: &Arc<dyn ObjectStore>, probe: &Path) -> Result<Layout, Error> {
    let attempt = async |bytes: &str, mode| put(store, probe, bytes.into(), mode).await;
    let unsupported = |reason| Err(Error::Unsupported { store: store.to_string(), reason });
    let created = match attempt("created", PutMode::Create).await {
        Put::Done(created) => created,
        Put::Unsupported(reason) => return unsupported(reason),
        Put::Unmet => return unsupported("it reports that a new object already exists".into()),
        Put::Unknown(error) | Put::Failed(error) => return Err(unavailable(store, error)),
    };
    match attempt("created twice", PutMode::Create).await {
        Put::Unmet => {}
        Put::Done(_) => {
            return unsupported(
                "it ignores If-None-Match and overwrites an existing object".into(),
            );
        }
        Put::Unsupported(reason) => return unsupported(reason),
        Put::Unknown(error) | Put::Failed(error) => return Err(unavailable(store, error)),
    }
    let first = PutMode::Update(created.into());
    match attempt("replaced", first.clone()).await {
        Put::Done(_) => {}
        Put::Unsupported(_) => return Ok(Layout::Versioned),
        Put::Unmet => return unsupported("it does not recognise its own ETag".into()),
        Put::Unknown(error) | Put::Failed(error) => return Err(unavailable(store, error)),
    }
    match attempt("replaced twice", first).await {
        Put::Unmet => Ok(Layout::Conditional),
        Put::Done(_) => {
            unsupported("it ignores If-Match and replaces an object that has changed".into())
        }
        Put::Unsupported(reason) => unsupported(reason),
        Put::Unknown(error) | Put::Failed(error) => Err(unavailable(store, error)),
    }
}

fn nonce() -> Result<Nonce, Error> {
    Nonce::draw().map_err(|error| Error::Unavailable {
        store: "the system's source of random numbers".into(),
        source: error.to_string().into(),
    })
}

fn path(text: String) -> Result<Path, Error> {
    Path::parse(&text)
        .map_err(|error| Error::InvalidResource { resource: text, reason: error.to_string() })
}

fn damaged(resource: &str, reason: &str) -> Error {
    Error::Damaged { resource: resource.into(), reason: reason.into() }
}

/// Nothing was written.
fn unavailable(store: &Arc<dyn ObjectStore>, error: StoreError) -> Error {
    let store = store.to_string();
    if is_full(&error) {
        return Error::Full { store, source: error.into() };
    }
    Error::Unavailable { store, source: error.into() }
}

fn is_full(error: &StoreError) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| matches!(io.kind(), StorageFull | QuotaExceeded)) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    #[test]
    fn a_full_disk_is_recognised_below_the_stores_own_error() {
        let store: Arc<dyn ObjectStore> = Arc::new(object_store::memory::InMemory::new());
        let failed = |kind: ErrorKind| {
            let source = Box::new(StoreError::Generic {
                store: "outer",
                source: Box::new(std::io::Error::from(kind)),
            });
            unavailable(&store, StoreError::Generic { store: "disk", source })
        };
        assert!(matches!(failed(ErrorKind::StorageFull), Error::Full { .. }));
        assert!(matches!(failed(ErrorKind::QuotaExceeded), Error::Full { .. }));
        assert!(matches!(failed(ErrorKind::PermissionDenied), Error::Unavailable { .. }));
    }
}
