//! The layer in front of an HTTP service.

use crate::rules::exclusive;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{Method, Request, StatusCode};
use axum::routing::any;
use holdfast_fence::http::{FENCING_TOKEN, FenceLayer, insert_token};
use holdfast_fence::sqlite::Sqlite;
use holdfast_fence::{Error, Fence, FenceFuture, Fenced, Token};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use tower::ServiceExt;

/// What the handlers did, and where they wait.
#[derive(Default)]
struct Seen {
    log: Mutex<Vec<String>>,
    entered: Notify,
    go_on: Notify,
}

impl Seen {
    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

async fn handler(State(seen): State<Arc<Seen>>, request: Request<Body>) -> String {
    let token = request.extensions().get::<Token>().map_or("none".into(), Token::to_string);
    seen.log.lock().unwrap().push(format!("{token} enters"));
    match request.uri().query() {
        Some("stall") => {
            seen.entered.notify_one();
            seen.go_on.notified().await;
        }
        Some("panic") => panic!("a handler that panics, on purpose"),
        _ => {}
    }
    seen.log.lock().unwrap().push(format!("{token} leaves"));
    "done".into()
}

struct Setup {
    app: Router,
    seen: Arc<Seen>,
    _folder: tempfile::TempDir,
}

fn setup() -> Setup {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Sqlite::open(folder.path().join("numbers.db")).unwrap());
    let seen = Arc::<Seen>::default();
    let app = Router::new()
        .route("/ledger", any(handler))
        .route("/other", any(handler))
        .layer(FenceLayer::new(store))
        .with_state(seen.clone());
    Setup { app, seen, _folder: folder }
}

async fn ask(app: &Router, method: Method, uri: &str, token: Option<&str>) -> (StatusCode, String) {
    let mut request = Request::builder().method(method).uri(uri);
    if let Some(token) = token {
        request = request.header(FENCING_TOKEN, token);
    }
    let response = app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 10_000).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn tokens_are_checked_before_the_handler_is_called() {
    let Setup { app, seen, _folder } = setup();
    let put = async |token| ask(&app, Method::PUT, "/ledger", token).await;
    assert_eq!(put(Some("35")).await, (StatusCode::OK, "done".into()));
    let (status, body) = put(Some("34")).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&body["code"], &body["shown"], &body["highest"]),
        (&"fenced".into(), &34.into(), &35.into())
    );
    assert!(body["message"].as_str().unwrap().contains("a later holder has shown token 35"));

    for (token, status) in [
        (None, StatusCode::PRECONDITION_REQUIRED),
        (Some(""), StatusCode::BAD_REQUEST),
        (Some("ana"), StatusCode::BAD_REQUEST),
        (Some("0"), StatusCode::BAD_REQUEST),
        (Some("36;permit"), StatusCode::BAD_REQUEST),
        (Some("34;shared"), StatusCode::CONFLICT),
    ] {
        assert_eq!(put(token).await.0, status, "{token:?}");
    }
    assert_eq!(seen.log(), ["35 enters", "35 leaves"]);

    // Reading is free; with a token it raises the fence.
    assert_eq!(ask(&app, Method::GET, "/ledger", None).await.0, StatusCode::OK);
    assert_eq!(ask(&app, Method::GET, "/ledger", Some("40")).await.0, StatusCode::OK);
    assert_eq!(put(Some("35")).await.0, StatusCode::CONFLICT);
    // Another path is another resource.
    assert_eq!(ask(&app, Method::PUT, "/other", Some("35")).await.0, StatusCode::OK);
}

/// 34 passed the check, stalled in its handler, and wrote after 35 had read: comparing tokens at
/// the entrance is not enough.
#[tokio::test]
async fn stalled_34_keeps_35_waiting() {
    let Setup { app, seen, _folder } = setup();
    let send = |uri: &'static str, token: &'static str| {
        let app = app.clone();
        tokio::spawn(async move { ask(&app, Method::PUT, uri, Some(token)).await.0 })
    };
    let old = send("/ledger?stall", "34");
    seen.entered.notified().await;
    let new = send("/ledger", "35");
    // Other resources are not held up.
    assert_eq!(send("/other", "35").await.unwrap(), StatusCode::OK);
    seen.go_on.notify_one();
    assert_eq!(old.await.unwrap(), StatusCode::OK);
    assert_eq!(new.await.unwrap(), StatusCode::OK);
    let ledger = ["34 enters", "35 enters", "35 leaves", "34 leaves", "35 enters", "35 leaves"];
    assert_eq!(seen.log(), ledger, "the first 35 is that of the other resource");
    assert_eq!(send("/ledger", "34").await.unwrap(), StatusCode::CONFLICT);
}

/// 34's client disconnected while its handler was working. The handler was dropped at once, and
/// what it had sent to its database arrived after 35 had read.
#[tokio::test]
async fn handler_of_a_disconnected_client_keeps_35_waiting() {
    let Setup { app, seen, _folder } = setup();
    let request = |token| {
        let mut request = Request::put("/ledger").body(Body::empty()).unwrap();
        insert_token(request.headers_mut(), exclusive(token));
        request
    };
    let mut stalls = request(34);
    *stalls.uri_mut() = "/ledger?stall".parse().unwrap();
    let old = tokio::spawn(app.clone().oneshot(stalls));
    seen.entered.notified().await;
    old.abort();
    assert!(old.await.unwrap_err().is_cancelled());
    let new = tokio::spawn(app.clone().oneshot(request(35)));
    seen.go_on.notify_one();
    assert_eq!(new.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(seen.log(), ["34 enters", "34 leaves", "35 enters", "35 leaves"]);
}

#[tokio::test]
async fn panicking_handler_frees_the_resource() {
    let Setup { app, _folder, .. } = setup();
    let (status, _) = ask(&app, Method::PUT, "/ledger?panic", Some("34")).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(ask(&app, Method::PUT, "/ledger", Some("35")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn shared_tokens_run_concurrently() {
    let Setup { app, seen, _folder } = setup();
    let send = |token: &'static str| {
        let app = app.clone();
        tokio::spawn(async move { ask(&app, Method::GET, "/ledger?stall", Some(token)).await.0 })
    };
    let (first, second) = (send("34;shared"), send("35;shared"));
    // Both have to be inside before either may leave.
    seen.entered.notified().await;
    while seen.log().len() < 2 {
        tokio::task::yield_now().await;
    }
    seen.go_on.notify_waiters();
    assert_eq!(first.await.unwrap(), StatusCode::OK);
    assert_eq!(second.await.unwrap(), StatusCode::OK);
}

/// A store that is down.
struct Down;

impl Fence for Down {
    fn raise<'a>(&'a self, _: &'a str, _: Token) -> FenceFuture<'a, Fenced> {
        Box::pin(async { Err(Error::Unavailable { store: "it".into(), source: "down".into() }) })
    }

    fn write<'a>(&'a self, _: &'a str, _: Token, _: bytes::Bytes) -> FenceFuture<'a, ()> {
        unreachable!("the layer only raises")
    }

    fn read<'a>(&'a self, resource: &'a str) -> FenceFuture<'a, Fenced> {
        self.raise(resource, exclusive(1))
    }
}

#[tokio::test]
async fn layer_without_its_store_refuses_everything() {
    let seen = Arc::<Seen>::default();
    let app = Router::new()
        .route("/ledger", any(handler))
        .layer(FenceLayer::new(Arc::new(Down)))
        .with_state(seen.clone());
    let (status, body) = ask(&app, Method::PUT, "/ledger", Some("35")).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    assert_eq!(seen.log(), [""; 0]);
}
