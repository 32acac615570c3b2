//! An object store whose puts wait until a test lets them continue, or fail as the test says.

use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use tokio_stream::Stream;

type BoxStream<T> = Pin<Box<dyn Stream<Item = Result<T>> + Send>>;

/// Each put waits here before it reaches the store, or before its reply comes back.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// A put is waiting.
    pub(crate) reached: Notify,
    /// One may continue.
    pub(crate) opened: Notify,
    /// Puts wait after they were carried out, instead of before.
    pub(crate) after: AtomicBool,
    /// Puts don't wait at all, but fail with this error of local disk.
    pub(crate) fails: Mutex<Option<DiskFault>>,
}

/// How local disk fails, as `LocalFileSystem` reports it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiskFault {
    pub(crate) error: std::io::ErrorKind,
    /// The file existed when it failed: it was the folder that could not be synced.
    pub(crate) done: bool,
}

#[derive(Debug)]
pub(crate) struct Gated {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) gate: Arc<Gate>,
}

impl fmt::Display for Gated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a gate before {}", self.store)
    }
}

#[async_trait::async_trait]
impl ObjectStore for Gated {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let fault = *self.gate.fails.lock().unwrap();
        if let Some(DiskFault { error, done }) = fault {
            if done {
                self.store.put_opts(location, payload, options).await?;
            }
            let source = std::io::Error::from(error).into();
            return Err(object_store::Error::Generic { store: "LocalFileSystem", source });
        }
        if self.gate.after.load(Ordering::Relaxed) {
            let done = self.store.put_opts(location, payload, options).await;
            self.gate.reached.notify_one();
            self.gate.opened.notified().await;
            return done;
        }
        self.gate.reached.notify_one();
        self.gate.opened.notified().await;
        self.store.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.store.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<Path>) -> BoxStream<Path> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<ObjectMeta> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}
