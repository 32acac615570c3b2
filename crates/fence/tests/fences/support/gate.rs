//! An object store whose puts wait until a test lets them go on.

use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio_stream::Stream;

type BoxStream<T> = Pin<Box<dyn Stream<Item = Result<T>> + Send>>;

/// Each put waits here before it reaches the store.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Somebody waits.
    pub(crate) reached: Notify,
    /// One may go on.
    pub(crate) opened: Notify,
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
