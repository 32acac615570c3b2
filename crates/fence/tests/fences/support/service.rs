//! An HTTP service behind a `FenceLayer`, and a client for it that is a `Fence`.

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::routing::get;
use holdfast_fence::http::{FENCING_TOKEN, FenceLayer, header_value};
use holdfast_fence::{Error, Fence, FenceFuture, Fenced, Token};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The service's values.
type Values = Arc<Mutex<HashMap<String, Bytes>>>;

/// The service; it ends when this is dropped.
pub(crate) struct Service {
    pub(crate) url: String,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Service {
    /// `/fenced/KEY` is behind the layer, `/open/KEY` is the same value without it.
    pub(crate) async fn start(numbers: Arc<dyn Fence>) -> Self {
        let values = Values::default();
        let handlers = || get(read).put(write);
        let fenced =
            Router::new().route("/fenced/{key}", handlers()).layer(FenceLayer::new(numbers));
        let router =
            Router::new().route("/open/{key}", handlers()).merge(fenced).with_state(values);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, task }
    }
}

async fn read(State(values): State<Values>, Path(key): Path<String>) -> Bytes {
    values.lock().unwrap().get(&key).cloned().unwrap_or_default()
}

async fn write(State(values): State<Values>, Path(key): Path<String>, body: Bytes) {
    values.lock().unwrap().insert(key, body);
}

/// The service as a fence: a raise is a GET with a token, a write a PUT.
pub(crate) struct ServiceClient {
    pub(crate) url: String,
}

impl ServiceClient {
    async fn send(&self, path: String, token: Option<Token>, body: Option<Bytes>) -> Answer {
        let url = format!("{}{path}", self.url);
        tokio::task::spawn_blocking(move || {
            let config = ureq::Agent::config_builder().http_status_as_error(false).build();
            let agent = ureq::Agent::new_with_config(config);
            let header = token.map(header_value);
            let mut response = match body {
                Some(body) => {
                    let mut put = agent.put(url);
                    if let Some(header) = header {
                        put = put.header(FENCING_TOKEN, header);
                    }
                    put.send(&body[..])
                }
                None => {
                    let mut get = agent.get(url);
                    if let Some(header) = header {
                        get = get.header(FENCING_TOKEN, header);
                    }
                    get.call()
                }
            }
            .unwrap();
            let body = response.body_mut().read_to_vec().unwrap();
            Answer { status: response.status().as_u16(), body: body.into() }
        })
        .await
        .unwrap()
    }
}

struct Answer {
    status: u16,
    body: Bytes,
}

impl Answer {
    fn done(self) -> Result<Bytes, Error> {
        match self.status {
            200 => Ok(self.body),
            // The tests check the text.
            _ => Err(Error::Unavailable {
                store: "the service".into(),
                source: String::from_utf8_lossy(&self.body).into(),
            }),
        }
    }
}

fn fenced(body: Bytes) -> Fenced {
    Fenced { value: Some(body).filter(|body| !body.is_empty()), ..Fenced::default() }
}

impl Fence for ServiceClient {
    fn raise<'a>(&'a self, resource: &'a str, token: Token) -> FenceFuture<'a, Fenced> {
        Box::pin(async move {
            self.send(format!("/fenced/{resource}"), Some(token), None).await.done().map(fenced)
        })
    }

    fn write<'a>(&'a self, resource: &'a str, token: Token, value: Bytes) -> FenceFuture<'a, ()> {
        Box::pin(async move {
            let path = format!("/fenced/{resource}");
            self.send(path, Some(token), Some(value)).await.done().map(drop)
        })
    }

    fn read<'a>(&'a self, resource: &'a str) -> FenceFuture<'a, Fenced> {
        Box::pin(async move {
            self.send(format!("/open/{resource}"), None, None).await.done().map(fenced)
        })
    }
}

impl ServiceClient {
    /// Bypasses the fence.
    pub(crate) async fn write_unfenced(&self, resource: &str, value: Bytes) {
        self.send(format!("/open/{resource}"), None, Some(value)).await.done().unwrap();
    }
}
