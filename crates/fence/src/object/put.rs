//! Conditional puts, and what their errors say about whether anything was written.
//!
//! Nothing was written only if the error proves that. All other errors are a [`Uncertainty`], and what is
//! stored now has to tell.

use super::{Layout, Record};
use crate::Error;
use crate::object::record::WriteOutcome;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, PutMode, PutOptions, PutResult};
use std::sync::Arc;

/// The outcome of a conditional put.
pub(super) enum Put {
    Done(PutResult),
    /// It did not simply succeed.
    Uncertainty(Uncertainty),
    /// The store does not support the condition. Nothing was written.
    Unsupported(String),
    /// Nothing was written.
    Failed(StoreError),
}

/// Why the outcome of a put has to be looked into.
#[derive(Debug)]
pub(super) enum Uncertainty {
    /// The condition did not hold. Unless that is `certain`, an earlier attempt of the same put may
    /// be the reason.
    Unmet { certain: bool },
    /// The reply was lost: it may have been written, or may still be.
    ReplyLost(StoreError),
    /// Local disk failed. Nothing is in flight any more, but what was written may not survive a
    /// crash.
    DiskFailed(StoreError),
    /// It was written, but perhaps under a number that was used before.
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
            Put::Uncertainty(Uncertainty::Unmet { certain: is_unmet_at_once(&error) })
        }
        // The store's client returns these before it sends anything.
        StoreError::NotImplemented { .. } | StoreError::NotSupported { .. } => {
            Put::Unsupported(error.to_string())
        }
        StoreError::InvalidPath { .. } => Put::Failed(error),
        StoreError::Generic { store: "LocalFileSystem", .. } => {
            Put::Uncertainty(Uncertainty::DiskFailed(error))
        }
        _ if is_rejected_at_once(&error) => Put::Failed(error),
        _ => Put::Uncertainty(Uncertainty::ReplyLost(error)),
    }
}

/// The condition did not hold, and no earlier attempt of the same put can be the reason.
fn is_unmet_at_once(error: &StoreError) -> bool {
    use std::io::ErrorKind::AlreadyExists;
    let request = Request::of(error);
    let on_disk = || causes(error).any(|cause| io_kind(cause) == Some(AlreadyExists));
    request.map_or_else(on_disk, |request| !request.is_repeated)
}

/// There was only one request, and the server rejected it as the client's mistake.
fn is_rejected_at_once(error: &StoreError) -> bool {
    const REQUEST_TIMEOUT: u16 = 408;
    Request::of(error).is_some_and(|Request { is_repeated, status }| {
        !is_repeated
            && status
                .is_some_and(|status| (400..500).contains(&status) && status != REQUEST_TIMEOUT)
    })
}

/// The server's reply to the last request was 501, which is how S3-compatible stores reply to a
/// condition they don't support. It does not say whether an earlier request was carried out.
fn is_not_implemented(error: &StoreError) -> bool {
    Request::of(error).is_some_and(|request| request.status == Some(501))
}

/// What an error of an HTTP store reveals about the requests that were sent.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    /// There was more than one, and any of them may have been carried out.
    is_repeated: bool,
    /// The status of the last reply, if there was one.
    status: Option<u16>,
}

impl Request {
    /// `None` if the store does not use HTTP, or if the error does not say.
    fn of(error: &StoreError) -> Option<Self> {
        causes(error).find_map(|cause| Self::parse(&cause.to_string()))
    }

    /// `object_store` keeps the error's type private, and shows its contents only as text:
    ///
    /// ```text
    /// Error performing PUT URL in 5ms, after 3 retries, max_retries: 3, retry_timeout: 60s  - REASON
    /// ```
    ///
    /// The URL contains the resource's name, but no space; the reason contains the reply's body. So
    /// only what is between them is trusted, and the status at the start of the reason.
    fn parse(text: &str) -> Option<Self> {
        let (_url, rest) = text.strip_prefix("Error performing PUT ")?.split_once(' ')?;
        let (effort, reason) = rest.strip_prefix("in ")?.split_once(" - ")?;
        let status = reason.strip_prefix("Server returned non-2xx status code: ");
        let status = status.and_then(|status| status.get(..3)?.parse().ok());
        Some(Self { is_repeated: effort.contains(" retries"), status })
    }
}

/// The error and what caused it.
fn causes(error: &StoreError) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    let first: &(dyn std::error::Error + 'static) = error;
    std::iter::successors(Some(first), |cause| cause.source())
}

fn io_kind(error: &(dyn std::error::Error + 'static)) -> Option<std::io::ErrorKind> {
    error.downcast_ref::<std::io::Error>().map(std::io::Error::kind)
}

/// The result of a put that did not simply succeed, given the current record. `None` means that it
/// did not take effect and never will: try again.
pub(super) fn settle(
    store: &Arc<dyn ObjectStore>,
    record: Record,
    doubt: Uncertainty,
    current: Result<Option<Record>, Error>,
) -> Result<Option<Record>, Error> {
    let unknown = |source| Err(Error::Unknown { store: store.to_string(), source });
    let current = match (current, &doubt) {
        (Ok(current), _) => current,
        (Err(error), Uncertainty::Unmet { certain: true }) => return Err(error),
        (Err(error), _) => return unknown(error.into()),
    };
    match (record.outcome_of(current.as_ref()), doubt) {
        (WriteOutcome::TookEffect, Uncertainty::DiskFailed(error)) => unknown(error.into()),
        (WriteOutcome::TookEffect, _) => Ok(Some(record)),
        (WriteOutcome::Lost, _) => Ok(None),
        (_, Uncertainty::Unmet { certain: true }) => Ok(None),
        // The object that was in the way is gone.
        (WriteOutcome::Pending, Uncertainty::Unmet { certain: false }) => Ok(None),
        (WriteOutcome::Pending, Uncertainty::DiskFailed(error)) => Err(unavailable(store, error)),
        (WriteOutcome::Pending, Uncertainty::Created) => {
            unknown("what was written is not there".into())
        }
        (_, Uncertainty::ReplyLost(error) | Uncertainty::DiskFailed(error)) => {
            unknown(error.into())
        }
        (WriteOutcome::Forgotten, Uncertainty::Unmet { .. } | Uncertainty::Created) => {
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
        // Whatever was written, it is only the probe.
        Put::Uncertainty(Uncertainty::ReplyLost(error)) if is_not_implemented(&error) => {
            Put::Unsupported(error.to_string())
        }
        Put::Uncertainty(Uncertainty::ReplyLost(error) | Uncertainty::DiskFailed(error)) => {
            Put::Failed(error)
        }
        put => put,
    };
    let unsupported = |reason| Err(Error::Unsupported { store: store.to_string(), reason });
    let created = match attempt("created", PutMode::Create).await {
        Put::Done(created) => created,
        Put::Uncertainty(Uncertainty::Unmet { certain: true }) => {
            return unsupported("it reports that a new object already exists".into());
        }
        Put::Uncertainty(_) => return Ok(None),
        Put::Unsupported(reason) => return unsupported(reason),
        Put::Failed(error) => return Err(unavailable(store, error)),
    };
    match attempt("created twice", PutMode::Create).await {
        Put::Uncertainty(_) => {}
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
        Put::Uncertainty(Uncertainty::Unmet { certain: true }) => {
            return unsupported("it does not recognise its own ETag".into());
        }
        Put::Uncertainty(_) => return Ok(None),
        Put::Failed(error) => return Err(unavailable(store, error)),
    }
    match attempt("replaced twice", first).await {
        Put::Uncertainty(_) => Ok(Some(Layout::Conditional)),
        Put::Done(_) => {
            unsupported("it ignores If-Match and replaces an object that has changed".into())
        }
        Put::Unsupported(reason) => unsupported(reason),
        Put::Failed(error) => Err(unavailable(store, error)),
    }
}

/// The error for a failure after which nothing was written.
pub(super) fn unavailable(store: &Arc<dyn ObjectStore>, error: StoreError) -> Error {
    let store = store.to_string();
    if is_full(&error) {
        return Error::Full { store, source: error.into() };
    }
    Error::Unavailable { store, source: error.into() }
}

fn is_full(error: &StoreError) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    causes(error).any(|cause| matches!(io_kind(cause), Some(StorageFull | QuotaExceeded)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    /// The error's text was searched for `NotImplemented` and `status code: 4`, which may just as
    /// well be in the resource's name or in the reply.
    #[test]
    fn only_the_clients_own_error_text_counts() {
        let parse = |text: &str| Request::parse(&format!("Error performing PUT {text}"));
        let request = |is_repeated, status| Some(Request { is_repeated, status });
        let rejected =
            "http://s3/shop/x in 1.2ms - Server returned non-2xx status code: 403 Forbidden";
        assert_eq!(parse(rejected), request(false, Some(403)));
        for name in ["NotImplemented", "status%20code:%204", "-", "retries,max_retries"] {
            let repeated = format!(
                "http://s3/shop/{name} in 5s, after 3 retries, max_retries: 3, retry_timeout: 60s  - \
                 Server returned non-2xx status code: 500 Internal Server Error: in 1ms - Server \
                 returned non-2xx status code: 403"
            );
            assert_eq!(parse(&repeated), request(true, Some(500)), "{name}");
        }
        assert_eq!(
            parse("http://s3/x in 1ms - connection closed: status code: 403"),
            request(false, None)
        );
        for other in ["http://s3/x", "http://s3/x in 1ms", "x y in 1ms - z", ""] {
            assert_eq!(parse(other), None, "{other:?}");
        }
        assert_eq!(Request::parse("Object at location Error performing PUT a in 1 - b"), None);
    }

    #[test]
    fn full_disk_is_recognised_inside_the_stores_error() {
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
