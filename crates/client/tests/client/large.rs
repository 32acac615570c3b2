//! Requests and answers that are larger than a message may be.

use crate::proxy::{Proxy, Way};
use crate::server::Node;
use crate::{eventually, soon};
use holdfast_client::{Client, Error, ErrorCode, Health};
use std::time::Duration;

/// More than a server accepts.
const HUGE: usize = 600 << 10;

/// A request that was larger than a server accepts was sent forever: each time the server ended the
/// stream, and the client sent it again over the next one. Nothing else got through.
#[tokio::test]
async fn oversized_requests_are_refused_by_the_client() {
    let node = Node::start().await;
    let client = node.client().await;
    let guard = client.lock("seat").acquire().await.unwrap();
    let huge = "x".repeat(HUGE);
    let names: Vec<String> = (0..2_000).map(|number| format!("{number}{}", &huge[..400])).collect();
    let register = client.register("seat");
    let refused = [
        soon(client.lock("other").label(&*huge).acquire()).await.map(drop),
        soon(client.lock("other").note(&huge).acquire()).await.map(drop),
        soon(client.lock(&huge).acquire()).await.map(drop),
        soon(client.locks(&names).acquire()).await.map(drop),
        soon(client.election("other").campaign(&*huge)).await.map(drop),
        soon(guard.note(Some(huge.as_bytes()))).await,
        soon(register.put(&huge, &guard)).await.map(drop),
        soon(client.register(&huge).raise(&guard)).await.map(drop),
        soon(client.register(&huge).get()).await.map(drop),
        soon(client.election(&huge).leader()).await.map(drop),
        soon(client.watch(&huge)).await.map(drop),
        soon(Client::builder().label(&*huge).connect([&node.url])).await.map(drop),
    ];
    for refused in refused {
        let code = refused.as_ref().err().and_then(Error::code);
        assert_eq!(code, Some(&ErrorCode::TooLarge), "{refused:?}");
    }
    assert_eq!(guard.health(), Health::Good);
    soon(register.put("x", &guard)).await.unwrap();
    soon(guard.release()).await.unwrap();
    node.end().await;
}

/// The status of all tickets of a client that reattaches was one message, and more than 64 MiB were
/// not accepted: the session was lost with all its guards, whose locks the server considered held.
#[tokio::test]
async fn client_with_many_tickets_reattaches() {
    const TICKETS: usize = 240;
    let node = Node::start().await;
    let text = "x".repeat(4096);
    let names = |ticket: usize| -> Vec<String> {
        (0..16).map(|name| format!("{ticket}/{name}{}", "n".repeat(400))).collect()
    };
    // Each holder learns, for each name, how the last holder ended and what its note was.
    let dead = Client::builder().label(&*text).connect([&node.url]).await.unwrap();
    for ticket in 0..TICKETS {
        let lock = dead.locks(names(ticket)).note(&text);
        std::mem::forget(soon(lock.acquire()).await.unwrap());
    }
    dead.close().await;
    let proxy = Proxy::to(&node.url);
    let setup = Client::builder().session_ttl(Duration::from_secs(20));
    let client = setup.connect([&proxy.url]).await.unwrap();
    let mut guards = Vec::new();
    for ticket in 0..TICKETS {
        let guard = soon(client.locks(names(ticket)).label(&*text).acquire()).await.unwrap();
        assert_eq!(guard.deaths().len(), 16);
        guards.push(guard);
    }
    proxy.set(Way::Cut);
    let before = guards[0].remaining();
    let cut = guards[0].health();
    assert_eq!(cut, Health::Good);
    tokio::time::sleep(Duration::from_millis(300)).await;
    proxy.set(Way::Open);
    eventually("the lease is confirmed again", async || guards[0].remaining() > before).await;
    // It learns the status of its tickets, and gets answers again.
    soon(guards[0].note(None)).await.unwrap();
    for guard in &guards {
        assert_eq!(guard.health(), Health::Good);
    }
    soon(client.lock("other").acquire()).await.unwrap();
    node.end().await;
}
