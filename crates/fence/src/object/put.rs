//! Conditional puts, and what their errors say about whether anything was written.

use super::{Layout, Record};
use crate::Error;
use crate::object::record::Fate;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, PutMode, PutOptions, PutResult};
use std::sync::Arc;

/// The outcome of a conditional put.
pub(super) enum Put {
    Done(PutResult),
    /// It did not simply succeed.
    Doubt(Doubt),
    /// The store does not support the condition. Nothing was written.
    Unsupported(String),
    /// Nothing was written.
    Failed(StoreError),
}

/// Why a put has to be looked into.
#[derive(Debug)]
pub(super) enum Doubt {
    /// The condition did not hold. Unless that is `certain`, an earlier try of the same put may be the
    /// reason.
    Unmet { certain: bool },
    /// The reply was lost: it may have been written, or still be.
    ReplyLost(StoreError),
    /// Local disk failed. Nothing is under way any more, but what was written may not survive a crash.
    DiskFailed(StoreError),
    /// It was written, but perhaps under a number that had been used before.
    Created,
}

pub(super) async fn put(
    store: &Arc<dyn ObjectStore>,
    path: &Path,
    bytes: Vec<u8>,
    mode: PutMode,
) -> Put {
    let options = PutOptions { mode, ..PutOptions::default() };
    let error = match store.put_opts(path, bytes.into(), options).await {
        Ok(result) => return Put::Done(result),
        Err(error) => error,
    };
    match &error {
        StoreError::AlreadyExists { .. } | StoreError::Precondition { .. } => {
            Put::Doubt(Doubt::Unmet { certain: tries(&error) != Tries::Several })
        }
        StoreError::NotImplemented { .. } | StoreError::NotSupported { .. } => {
            Put::Unsupported(error.to_string())
        }
        // The reply of S3 look-alikes without conditional writes.
        _ if error.to_string().contains("NotImplemented") => Put::Unsupported(error.to_string()),
        StoreError::InvalidPath { .. } => Put::Failed(error),
        StoreError::Generic { store: "LocalFileSystem", .. } => {
            Put::Doubt(Doubt::DiskFailed(error))
        }
        _ if tries(&error) == Tries::OneRejected => Put::Failed(error),
        _ => Put::Doubt(Doubt::ReplyLost(error)),
    }
}

/// What an error tells about the requests that were sent.
#[derive(Debug, PartialEq, Eq)]
enum Tries {
    /// One, and the server rejected it with a status of 4xx.
    OneRejected,
    /// More than one, and any of them may have been carried out.
    Several,
    /// None over HTTP, or it can't be told.
    Unclear,
}

/// `object_store` keeps the number of its retries private, and shows it only in the text.
fn tries(error: &StoreError) -> Tries {
    let text = error.to_string();
    if text.contains(" retries, max_retries") {
        Tries::Several
    } else if text.contains("Error performing") && text.contains("status code: 4") {
        Tries::OneRejected
    } else {
        Tries::Unclear
    }
}

/// What to answer after a put that did not simply succeed, given the record that is current now.
/// `None` means that it did not take effect and never will: try again.
pub(super) fn settle(
    store: &Arc<dyn ObjectStore>,
    record: Record,
    doubt: Doubt,
    current: Result<Option<Record>, Error>,
) -> Result<Option<Record>, Error> {
    let unknown = |source| Err(Error::Unknown { store: store.to_string(), source });
    let current = match (current, &doubt) {
        (Ok(current), _) => current,
        (Err(error), Doubt::Unmet { certain: true }) => return Err(error),
        (Err(error), _) => return unknown(error.into()),
    };
    match (record.fate(current.as_ref()), doubt) {
        (Fate::TookEffect, Doubt::DiskFailed(error)) => unknown(error.into()),
        (Fate::TookEffect, _) => Ok(Some(record)),
        (Fate::Lost, _) => Ok(None),
        (_, Doubt::Unmet { certain: true }) => Ok(None),
        // The object that was in the way is gone.
        (Fate::Pending, Doubt::Unmet { certain: false }) => Ok(None),
        (Fate::Pending, Doubt::DiskFailed(error)) => Err(unavailable(store, error)),
        (Fate::Pending, Doubt::Created) => unknown("what was written is not there".into()),
        (_, Doubt::ReplyLost(error) | Doubt::DiskFailed(error)) => unknown(error.into()),
        (Fate::Forgotten, Doubt::Unmet { .. } | Doubt::Created) => {
            unknown("too many others have written since".into())
        }
    }
}

/// Finds out which layout the store supports. `None` if a reply was lost: probe again.
///
/// Some stores accept a condition and ignore it, so each is checked to fail when it should.
pub(super) async fn probe_layout(
    store: &Arc<dyn ObjectStore>,
    probe: &Path,
) -> Result<Option<Layout>, Error> {
    let attempt = async |bytes: &str, mode| match put(store, probe, bytes.into(), mode).await {
        Put::Doubt(Doubt::ReplyLost(error) | Doubt::DiskFailed(error)) => Put::Failed(error),
        put => put,
    };
    let unsupported = |reason| Err(Error::Unsupported { store: store.to_string(), reason });
    let created = match attempt("created", PutMode::Create).await {
        Put::Done(created) => created,
        Put::Doubt(Doubt::Unmet { certain: true }) => {
            return unsupported("it reports that a new object already exists".into());
        }
        Put::Doubt(_) => return Ok(None),
        Put::Unsupported(reason) => return unsupported(reason),
        Put::Failed(error) => return Err(unavailable(store, error)),
    };
    match attempt("created twice", PutMode::Create).await {
        Put::Doubt(_) => {}
        Put::Done(_) => {
            return unsupported(
                "it ignores If-None-Match and overwrites an existing object".into(),
            );
        }
        Put::Unsupported(reason) => return unsupported(reason),
        Put::Failed(error) => return Err(unavailable(store, error)),
    }
    let first = PutMode::Update(created.into());
    match attempt("replaced", first.clone()).await {
        Put::Done(_) => {}
        Put::Unsupported(_) => return Ok(Some(Layout::Versioned)),
        Put::Doubt(Doubt::Unmet { certain: true }) => {
            return unsupported("it does not recognise its own ETag".into());
        }
        Put::Doubt(_) => return Ok(None),
        Put::Failed(error) => return Err(unavailable(store, error)),
    }
    match attempt("replaced twice", first).await {
        Put::Doubt(_) => Ok(Some(Layout::Conditional)),
        Put::Done(_) => {
            unsupported("it ignores If-Match and replaces an object that has changed".into())
        }
        Put::Unsupported(reason) => unsupported(reason),
        Put::Failed(error) => Err(unavailable(store, error)),
    }
}

/// Nothing was written.
pub(super) fn unavailable(store: &Arc<dyn ObjectStore>, error: StoreError) -> Error {
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
