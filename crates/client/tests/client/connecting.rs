//! Opening a session: which server is used, and unwanted sessions.

use crate::proxy::{Proxy, Way};
use crate::server::{Node, free_port};
use crate::{eventually, soon};
use holdfast_client::{Client, Error};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Longer than any test runs.
const LONG_TTL: Duration = Duration::from_hours(1);

/// How many sessions with this label the server has.
async fn sessions(node: &Node, label: &str) -> usize {
    let address = node.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /v1/sessions?limit=1000 HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer.matches(&format!("\"{label}\"")).count()
}

/// A `connect` that was dropped, for instance by a timeout, left its session open until its TTL had
/// passed if the request had already been sent: 19 of 20, with late answers.
#[tokio::test]
async fn dropped_connect_leaves_no_session() {
    let node = Node::start().await;
    for round in 0..3 {
        let (proxy, label) = (Proxy::to(&node.url), format!("dropped-{round}"));
        proxy.set(Way::AnswersWait);
        let setup = Client::builder().label(&label).session_ttl(LONG_TTL);
        let connects = tokio::spawn(setup.connect(proxy.url.clone()));
        eventually("it is open", async || sessions(&node, &label).await == 1).await;
        connects.abort();
        assert!(connects.await.is_err());
        proxy.set(Way::Open);
        eventually("it is closed", async || sessions(&node, &label).await == 0).await;
    }
    node.end().await;
}

/// The same at any moment.
#[tokio::test]
async fn connect_dropped_at_any_point_leaves_no_session() {
    let node = Node::start().await;
    for round in 0..100_u64 {
        let setup = Client::builder().label("dropped").session_ttl(LONG_TTL);
        let _ = timeout(Duration::from_micros(round * 97 % 8_000), setup.connect(&node.url)).await;
    }
    eventually("all are closed", async || sessions(&node, "dropped").await == 0).await;
    node.end().await;
}

/// The same if it had failed when the answer arrived, and for a session that was opened so late
/// that the client had asked for another one.
#[tokio::test]
async fn late_reply_leaves_no_session() {
    let node = Node::start().await;
    let proxy = Proxy::to(&node.url);
    proxy.set(Way::AnswersWait);
    let timeout = Duration::from_secs(2);
    let setup = Client::builder().label("failed").session_ttl(LONG_TTL).timeout(timeout);
    let fails = tokio::spawn(setup.connect(proxy.url.clone()));
    eventually("it is open", async || sessions(&node, "failed").await == 1).await;
    let failed = soon(fails).await.unwrap();
    assert!(matches!(failed, Err(Error::Unreachable(_))), "{failed:?}");
    let setup = Client::builder().label("late").session_ttl(LONG_TTL);
    let connects = tokio::spawn(setup.timeout(crate::LONG).connect(proxy.url.clone()));
    eventually("it is asked again", async || sessions(&node, "late").await == 2).await;
    proxy.set(Way::Open);
    let client = soon(connects).await.unwrap().unwrap();
    eventually("one is left", async || sessions(&node, "late").await == 1).await;
    eventually("it is closed", async || sessions(&node, "failed").await == 0).await;
    client.lock("seat").acquire().await.unwrap().release().await.unwrap();
    client.close().await;
    assert_eq!(sessions(&node, "late").await, 0);
    node.end().await;
}

/// Servers were asked one after the other, each for up to three seconds: with two of five hanging,
/// a client lost its lock, although the other three served everybody else.
#[tokio::test]
async fn hanging_servers_do_not_cost_the_lock() {
    let node = Node::start().await;
    let proxies: Vec<Proxy> = (0..5).map(|_| Proxy::to(&node.url)).collect();
    let urls: Vec<&str> = proxies.iter().map(|proxy| proxy.url.as_str()).collect();
    let ttl = Duration::from_secs(6);
    let client = Client::builder().session_ttl(ttl).connect(urls).await.unwrap();
    let guard = client.lock("seat").acquire().await.unwrap();
    // The one that it uses, and those that it asks next.
    proxies.iter().take(3).for_each(|proxy| proxy.set(Way::Stalled));
    let lost = timeout(ttl * 3 / 2, guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    soon(guard.note(Some(b"still here"))).await.unwrap();
    guard.release().await.unwrap();
    node.end().await;
}

/// The same for a client that connects, and for calls without a session: four silent servers before
/// one that answers took longer than the timeout.
#[tokio::test]
async fn the_only_responsive_server_is_found() {
    let node = Node::start().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_url = format!("http://{}", silent.local_addr().unwrap());
    let mut servers = vec![silent_url; 4];
    servers.push(format!("http://127.0.0.1:{}", free_port()));
    servers.push(node.url.clone());
    let setup = Client::builder().label("found").timeout(Duration::from_secs(8));
    let client = soon(setup.connect(servers)).await.unwrap();
    soon(client.register("seat").get()).await.unwrap();
    soon(client.watch("seat")).await.unwrap();
    assert_eq!(sessions(&node, "found").await, 1);
    node.end().await;
}

/// A failed connection was a "transport error", whatever the cause; and a failed connect said that
/// "it may or may not have been done".
#[tokio::test]
async fn failed_connect_reports_why() {
    let port = free_port();
    let setup = Client::builder().timeout(Duration::from_secs(1));
    let refused = soon(setup.connect(format!("127.0.0.1:{port}"))).await.unwrap_err().to_string();
    assert!(refused.contains(&port.to_string()), "{refused}");
    assert!(refused.to_lowercase().contains("connection refused"), "{refused}");
    assert!(!refused.contains("may or may not"), "{refused}");
}

/// An unanswered request said that "no server has answered yet", although a session was open.
#[tokio::test]
async fn unanswered_request_does_not_end_the_session() {
    let node = Node::start().await;
    let proxy = Proxy::to(&node.url);
    let setup = Client::builder().timeout(Duration::from_secs(2)).session_ttl(LONG_TTL);
    let client = setup.connect(&proxy.url).await.unwrap();
    proxy.set(Way::AnswersWait);
    let tried = soon(client.lock("seat").try_acquire()).await.unwrap_err().to_string();
    assert!(!tried.contains("no server has answered yet"), "{tried}");
    assert!(tried.contains("may or may not have been done"), "{tried}");
    proxy.set(Way::Open);
    node.end().await;
}
