//! How long a request occupies its resource behind the layer, and which requests share one.

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::routing::put;
use holdfast_fence::http::{FENCING_TOKEN, FenceLayer};
use holdfast_fence::sqlite::Sqlite;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tower::ServiceExt;

type Frames = ReceiverStream<Result<Bytes, std::io::Error>>;

/// What happens, in order, and the body that the next `GET` streams.
#[derive(Clone, Default)]
struct Service {
    log: Arc<Mutex<Vec<String>>>,
    body: Arc<Mutex<Option<Frames>>>,
}

impl Service {
    fn note(&self, event: &str) {
        self.log.lock().unwrap().push(event.into());
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

/// Reads the whole upload, and records it.
async fn upload(State(service): State<Service>, body: Body) -> StatusCode {
    service.note("upload begins");
    match to_bytes(body, 1_000).await {
        Ok(body) => service.note(&format!("uploaded {}", String::from_utf8_lossy(&body))),
        Err(error) => service.note(&format!("upload failed: {error}")),
    }
    StatusCode::OK
}

async fn stream(State(service): State<Service>) -> Body {
    let frames = service.body.lock().unwrap().take();
    match frames {
        Some(frames) => Body::from_stream(frames),
        None => Body::empty(),
    }
}

fn numbers() -> (Arc<Sqlite>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Arc::new(Sqlite::open(folder.path().join("numbers.db")).unwrap()), folder)
}

fn app(service: &Service, numbers: &Arc<Sqlite>) -> Router {
    Router::new()
        .route("/reports/{number}", put(upload).get(stream))
        .layer(FenceLayer::new(numbers.clone()))
        .with_state(service.clone())
}

fn request(method: &str, path: &str, token: &str, body: Body) -> Request<Body> {
    let request = Request::builder().method(method).uri(path).header(FENCING_TOKEN, token);
    request.body(body).unwrap()
}

async fn status(app: &Router, request: Request<Body>) -> StatusCode {
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let _ = to_bytes(response.into_body(), 10_000).await;
    status
}

fn frames() -> (mpsc::Sender<Result<Bytes, std::io::Error>>, Frames) {
    let (sender, receiver) = mpsc::channel(1);
    (sender, ReceiverStream::new(receiver))
}

/// Long enough for anything that does not wait for something else.
const MOMENT: Duration = Duration::from_millis(200);

/// A holder was paused in the middle of an upload. Its handler waited for the rest, and the next
/// holder for the handler, for 30 s, and was then rejected.
#[tokio::test]
async fn stalled_upload_does_not_lock_out_the_next_holder() {
    let (service, (numbers, _folder)) = (Service::default(), numbers());
    let app = app(&service, &numbers);
    let (sender, body) = frames();
    sender.send(Ok("total".into())).await.unwrap();
    let stalls = request("PUT", "/reports/7", "34", Body::from_stream(body));
    let old = tokio::spawn(app.clone().oneshot(stalls));
    while service.log().is_empty() {
        tokio::task::yield_now().await;
    }
    let new = status(&app, request("PUT", "/reports/7", "35", "total 40".into()));
    let new = tokio::time::timeout(Duration::from_secs(20), new).await;
    assert_eq!(new.expect("35 is let in"), StatusCode::OK);
    // What 34 had begun ended before 35 began.
    let log = service.log();
    assert!(log[1].starts_with("upload failed: "), "{log:?}");
    assert_eq!(log[2..], ["upload begins", "uploaded total 40"]);
    drop(sender);
    drop(old);
}

/// An upload that is merely slow is not disturbed by requests of the same holder, or by refused
/// ones.
#[tokio::test]
async fn slow_upload_of_the_newest_holder_is_allowed() {
    let (service, (numbers, _folder)) = (Service::default(), numbers());
    let app = app(&service, &numbers);
    let (sender, body) = frames();
    let slow = request("PUT", "/reports/7", "34", Body::from_stream(body));
    let slow = tokio::spawn(app.clone().oneshot(slow));
    while service.log().is_empty() {
        tokio::task::yield_now().await;
    }
    let late = status(&app, request("PUT", "/reports/7", "33", "late".into())).await;
    assert_eq!(late, StatusCode::CONFLICT);
    let same = request("PUT", "/reports/7", "34", "second".into());
    let same = tokio::spawn(app.clone().oneshot(same));
    tokio::time::sleep(MOMENT).await;
    sender.send(Ok("first".into())).await.unwrap();
    drop(sender);
    assert_eq!(slow.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(same.await.unwrap().unwrap().status(), StatusCode::OK);
    let log = service.log();
    assert_eq!(log, ["upload begins", "uploaded first", "upload begins", "uploaded second"]);
}

/// A handler streamed its response. The layer let the next holder in as soon as the status line was
/// ready, while the body was still being produced.
#[tokio::test]
async fn unfinished_response_keeps_the_next_request_waiting() {
    let (service, (numbers, _folder)) = (Service::default(), numbers());
    let app = app(&service, &numbers);
    let (sender, body) = frames();
    *service.body.lock().unwrap() = Some(body);
    let streams = request("GET", "/reports/7", "34", Body::empty());
    let response = app.clone().oneshot(streams).await.unwrap();
    let next = request("PUT", "/reports/7", "34", "total 40".into());
    let next = tokio::spawn(app.clone().oneshot(next));
    tokio::time::sleep(MOMENT).await;
    assert_eq!(service.log(), [""; 0], "the next request is handled already");
    sender.send(Ok("part 1, ".into())).await.unwrap();
    let reader = tokio::spawn(to_bytes(response.into_body(), 1_000));
    sender.send(Ok("part 2".into())).await.unwrap();
    drop(sender);
    assert_eq!(reader.await.unwrap().unwrap(), "part 1, part 2");
    assert_eq!(next.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(service.log(), ["upload begins", "uploaded total 40"]);
}

#[tokio::test]
async fn unread_response_does_not_lock_out_the_next_holder() {
    let (service, (numbers, _folder)) = (Service::default(), numbers());
    let app = app(&service, &numbers);
    let (sender, body) = frames();
    *service.body.lock().unwrap() = Some(body);
    let streams = request("GET", "/reports/7", "34", Body::empty());
    let unread = app.clone().oneshot(streams).await.unwrap();
    let new = status(&app, request("PUT", "/reports/7", "35", "total 40".into()));
    let new = tokio::time::timeout(Duration::from_secs(20), new).await;
    assert_eq!(new.expect("35 is let in"), StatusCode::OK);
    // The handler's body is gone, and its reader learns why.
    assert!(sender.is_closed());
    let error = to_bytes(unread.into_body(), 1_000).await.unwrap_err();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    assert!(cause.to_string().contains("a later holder has shown"), "{cause}");
}

/// A client that has disconnected does not keep anyone waiting either.
#[tokio::test]
async fn dropped_response_frees_the_resource() {
    let (service, (numbers, _folder)) = (Service::default(), numbers());
    let app = app(&service, &numbers);
    let (_sender, body) = frames();
    *service.body.lock().unwrap() = Some(body);
    let streams = request("GET", "/reports/7", "34", Body::empty());
    drop(app.clone().oneshot(streams).await.unwrap());
    let next = status(&app, request("PUT", "/reports/7", "34", "total 40".into())).await;
    assert_eq!(next, StatusCode::OK);
}

/// The resource was the path as it was sent: a holder that wrote `/reports/%37` was not fenced by
/// one that wrote `/reports/7`, though the handler is the same for both.
#[tokio::test]
async fn path_encoding_does_not_change_the_resource() {
    let (service, (numbers, _folder)) = (Service::default(), numbers());
    let app = app(&service, &numbers);
    let put = async |path: &str, token: &str| {
        status(&app, request("PUT", path, token, "total".into())).await
    };
    assert_eq!(put("/reports/7", "35").await, StatusCode::OK);
    assert_eq!(put("/reports/%37", "34").await, StatusCode::CONFLICT);
    assert_eq!(put("/reports/%37", "36").await, StatusCode::OK);
    assert_eq!(put("/reports/7?draft", "35").await, StatusCode::CONFLICT);
    assert_eq!(put("/reports/%ff", "36").await, StatusCode::BAD_REQUEST);
}

/// A service had one layer for its reports and one for the rest, over the same store. They ran
/// requests for one resource concurrently.
#[tokio::test]
async fn two_layers_over_one_store_exclude_each_other() {
    let (service, (numbers, _folder)) = (Service::default(), numbers());
    let by_name = FenceLayer::new(numbers.clone()).resource(|_| "/reports/7".into());
    let other =
        Router::new().route("/latest", put(upload)).layer(by_name).with_state(service.clone());
    let app = app(&service, &numbers).merge(other);
    let (sender, body) = frames();
    let slow = request("PUT", "/reports/7", "34", Body::from_stream(body));
    let slow = tokio::spawn(app.clone().oneshot(slow));
    while service.log().is_empty() {
        tokio::task::yield_now().await;
    }
    let next = request("PUT", "/latest", "34", "second".into());
    let next = tokio::spawn(app.clone().oneshot(next));
    tokio::time::sleep(MOMENT).await;
    assert_eq!(service.log(), ["upload begins"], "the other layer has let it in");
    sender.send(Ok("first".into())).await.unwrap();
    drop(sender);
    assert_eq!(slow.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(next.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(service.log().last().unwrap(), "uploaded second");
}

/// A program that had lost its token sent an empty header with its `GET`, and read without raising
/// the fence.
#[tokio::test]
async fn empty_token_differs_from_no_token() {
    let (service, (numbers, _folder)) = (Service::default(), numbers());
    let app = app(&service, &numbers);
    for token in ["", " ", ";shared"] {
        let get = status(&app, request("GET", "/reports/7", token, Body::empty())).await;
        assert_eq!(get, StatusCode::BAD_REQUEST, "{token:?}");
    }
    let none = Request::get("/reports/7").body(Body::empty()).unwrap();
    assert_eq!(status(&app, none).await, StatusCode::OK);
}

/// A holder's connection broke in the middle of its upload. Its handler waited for the rest
/// forever, and the same holder's next request for 30 s, and was then rejected.
#[tokio::test]
async fn stalled_upload_does_not_lock_out_its_own_holder() {
    let (service, (numbers, _folder)) = (Service::default(), numbers());
    let app = app(&service, &numbers);
    let (sender, body) = frames();
    sender.send(Ok("total".into())).await.unwrap();
    let stalls = request("PUT", "/reports/7", "34", Body::from_stream(body));
    let stalled = tokio::spawn(app.clone().oneshot(stalls));
    while service.log().is_empty() {
        tokio::task::yield_now().await;
    }
    let next = status(&app, request("PUT", "/reports/7", "34", "total 40".into())).await;
    assert_eq!(next, StatusCode::OK);
    let log = service.log();
    assert!(log[1].starts_with("upload failed: "), "{log:?}");
    assert_eq!(log[2..], ["upload begins", "uploaded total 40"]);
    drop(sender);
    drop(stalled);
}

/// 1,000 requests of a paused holder occupied the resource or waited for it. The next holder was
/// rejected because there were so many, before it could show its token.
#[tokio::test]
async fn thousand_stalled_requests_do_not_block_the_next_holder() {
    for old in ["34", "34;shared"] {
        let (service, (numbers, _folder)) = (Service::default(), numbers());
        let app = app(&service, &numbers);
        let mut stalled = Vec::new();
        let mut requests = tokio::task::JoinSet::new();
        for _ in 0..1_000 {
            let (sender, body) = frames();
            stalled.push(sender);
            let request = request("PUT", "/reports/7", old, Body::from_stream(body));
            let app = app.clone();
            requests.spawn(async move { status(&app, request).await });
        }
        let inside = if old == "34" { 1 } else { 1_000 };
        while service.log().len() < inside {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let new = status(&app, request("PUT", "/reports/7", "35", "total 40".into())).await;
        assert_eq!(new, StatusCode::OK, "{old}");
        assert_eq!(service.log().last().unwrap(), "uploaded total 40", "{old}");
        // Those that were still waiting are refused without getting a turn.
        let refused = requests.join_all().await;
        let refused = refused.iter().filter(|status| **status == StatusCode::CONFLICT).count();
        assert_eq!(refused, 1_000 - inside, "{old}");
        drop(stalled);
    }
}
