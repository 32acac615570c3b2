//! A small S3 API in this process: objects in memory, conditional puts, and faults on demand.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::{BackoffConfig, RetryConfig};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// What the server does wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// This many of the next puts are carried out, but answered with 500.
    LoseAnswers(u32),
    /// The next put is carried out, and its reply is a 500 that waits for [`S3::go_on`].
    HoldAnswer,
    /// The next put is carried out, but answered with 500; puts after it are answered with this
    /// status.
    LoseAnswerThen(u16),
    /// Puts are answered with this status.
    Answer(u16),
    /// Nothing is carried out, and everything is answered with 500.
    Down,
    /// Puts are carried out whatever their condition says.
    IgnoreConditions,
    /// Puts with a condition are answered with 501.
    NoConditions,
    /// Puts with `If-Match` are answered with 501.
    NoIfMatch,
    /// Puts are carried out, and answered with 501.
    DoneButNotImplemented,
}

#[derive(Default)]
struct Bucket {
    objects: HashMap<String, Bytes>,
    fault: Fault,
}

const LAYOUT: &str = "/shop/holdfast-fence-layout";

/// Where a reply waits.
#[derive(Default)]
struct Held {
    reached: Notify,
    opened: Notify,
}

/// The server; it ends when this is dropped.
pub(crate) struct S3 {
    pub(crate) url: String,
    bucket: Arc<Mutex<Bucket>>,
    held: Arc<Held>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl S3 {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (bucket, held) = (Arc::<Mutex<Bucket>>::default(), Arc::<Held>::default());
        let router = Router::new().fallback(answer).with_state((bucket.clone(), held.clone()));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, bucket, held, task }
    }

    pub(crate) fn fails(&self, fault: Fault) {
        self.bucket.lock().unwrap().fault = fault;
    }

    /// Waits until a reply is held.
    pub(crate) async fn held(&self) {
        self.held.reached.notified().await;
    }

    pub(crate) fn go_on(&self) {
        self.held.opened.notify_one();
    }

    /// Without the fence's own object.
    pub(crate) fn keys(&self) -> Vec<String> {
        let bucket = self.bucket.lock().unwrap();
        bucket.objects.keys().filter(|key| *key != LAYOUT).cloned().collect()
    }

    /// As if the fence had been opened by a version that did not record its layout.
    pub(crate) fn forget_layout(&self) {
        self.bucket.lock().unwrap().objects.remove(LAYOUT);
    }
}

/// The client includes TLS even for plain HTTP, and must be told which provider to use.
pub(crate) fn choose_tls() {
    // Another test may have done so.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A client of the server at this address.
pub(crate) fn client(url: &str) -> AmazonS3 {
    choose_tls();
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(1),
        max_backoff: Duration::from_millis(10),
        base: 2.0,
    };
    AmazonS3Builder::new()
        .with_endpoint(url)
        .with_bucket_name("shop")
        .with_region("us-east-1")
        .with_access_key_id("tests")
        .with_secret_access_key("tests")
        .with_allow_http(true)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(RetryConfig { backoff, max_retries: 3, retry_timeout: Duration::from_secs(60) })
        .build()
        .unwrap()
}

async fn answer(
    State((bucket, held)): State<(Arc<Mutex<Bucket>>, Arc<Held>)>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let is_put = method == Method::PUT;
    let before = bucket.lock().unwrap().fault;
    let response = answer_at_once(&bucket, method, &uri, &headers, body);
    if is_put && before == Fault::HoldAnswer && bucket.lock().unwrap().fault == Fault::None {
        held.reached.notify_one();
        held.opened.notified().await;
    }
    response
}

fn answer_at_once(
    bucket: &Mutex<Bucket>,
    method: Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: Bytes,
) -> Response {
    let mut bucket = bucket.lock().unwrap();
    let key = uri.path().to_owned();
    if bucket.fault == Fault::Down {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    match method {
        Method::GET if uri.query().is_some_and(|query| query.contains("list-type=2")) => {
            bucket.list(&key, uri.query().unwrap_or_default())
        }
        Method::GET | Method::HEAD => match bucket.objects.get(&key) {
            Some(object) => found(object),
            None => StatusCode::NOT_FOUND.into_response(),
        },
        Method::PUT => bucket.put(key, headers, body),
        Method::DELETE => {
            bucket.objects.remove(&key);
            StatusCode::NO_CONTENT.into_response()
        }
        Method::POST if uri.query() == Some("delete") => bucket.delete(&key, &body),
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

impl Bucket {
    /// The bucket's lock is held, so that comparing and writing are one step.
    fn put(&mut self, key: String, headers: &HeaderMap, body: Bytes) -> Response {
        let condition = |name| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let (matches, none) = (condition(header::IF_MATCH), condition(header::IF_NONE_MATCH));
        if self.fault == Fault::NoConditions && (matches.is_some() || none.is_some()) {
            let code = "<Error><Code>NotImplemented</Code></Error>";
            return (StatusCode::NOT_IMPLEMENTED, code).into_response();
        }
        if self.fault == Fault::NoIfMatch && matches.is_some() {
            let code = "<Error><Code>NotImplemented</Code></Error>";
            return (StatusCode::NOT_IMPLEMENTED, code).into_response();
        }
        if let Fault::Answer(status) = self.fault {
            return StatusCode::from_u16(status).unwrap().into_response();
        }
        let there = self.objects.get(&key).map(e_tag);
        let holds = match (&matches, &none) {
            (Some(wanted), _) => there.as_ref() == Some(wanted),
            (None, Some(_)) => there.is_none(),
            (None, None) => true,
        };
        if !holds && self.fault != Fault::IgnoreConditions {
            return StatusCode::PRECONDITION_FAILED.into_response();
        }
        let e_tag = e_tag(&body);
        self.objects.insert(key, body);
        match self.fault {
            Fault::LoseAnswers(left @ 1..) => self.fault = Fault::LoseAnswers(left - 1),
            Fault::HoldAnswer => self.fault = Fault::None,
            Fault::DoneButNotImplemented => {
                let code = "<Error><Code>NotImplemented</Code></Error>";
                return (StatusCode::NOT_IMPLEMENTED, code).into_response();
            }
            Fault::LoseAnswerThen(status) => self.fault = Fault::Answer(status),
            _ => return [(header::ETAG, e_tag)].into_response(),
        }
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

impl Bucket {
    /// The objects directly below a prefix.
    fn list(&self, bucket: &str, query: &str) -> Response {
        let prefix = query.split('&').find_map(|pair| pair.strip_prefix("prefix="));
        let prefix = decoded(prefix.unwrap_or_default());
        let bucket = format!("{}/", bucket.trim_end_matches('/'));
        let keys = self.objects.keys().filter_map(|key| key.strip_prefix(&bucket)).map(decoded);
        let listed =
            keys.filter(|key| key.strip_prefix(&prefix).is_some_and(|rest| !rest.contains('/')));
        let contents: String = listed
            .map(|key| {
                let key = key.replace('&', "&amp;").replace('<', "&lt;");
                format!(
                    "<Contents><Key>{key}</Key><LastModified>2015-10-21T07:28:00.000Z</LastModified>\
                     <Size>1</Size></Contents>"
                )
            })
            .collect();
        format!("<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>")
            .into_response()
    }

    /// Several objects at once, which is how the S3 client deletes even one.
    fn delete(&mut self, bucket: &str, body: &Bytes) -> Response {
        let body = String::from_utf8_lossy(body);
        for key in body.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next()) {
            self.objects.remove(&format!("{}/{key}", bucket.trim_end_matches('/')));
        }
        "<DeleteResult></DeleteResult>".into_response()
    }
}

/// Percent-decoded.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'%', [high, low, after @ ..]) => {
                let hex = [*high, *low];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
                rest = after;
            }
            _ => bytes.push(*first),
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// Like S3's: a hash of the body and of nothing else.
fn e_tag(body: &Bytes) -> String {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

fn found(object: &Bytes) -> Response {
    let modified = (header::LAST_MODIFIED, "Wed, 21 Oct 2015 07:28:00 GMT".to_owned());
    ([(header::ETAG, e_tag(object)), modified], object.clone()).into_response()
}
