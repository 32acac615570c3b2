//! Errors, and requests that nobody waits for any more.

use crate::cancel::show;
use crate::proxy::{Proxy, Way};
use crate::server::{Node, free_port};
use crate::{eventually, operator, soon};
use holdfast_client::{Client, Error, ErrorCode};
use holdfast_proto::v1::{Acquire, AcquireAlone, RevokeRequest};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tonic::Code;

const BRIEF: Duration = Duration::from_millis(300);

#[tokio::test]
async fn missing_server_is_unreachable_after_the_timeout() {
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let connected = soon(Client::builder().timeout(BRIEF).connect([nobody])).await;
    assert!(matches!(connected, Err(Error::Unreachable(_))), "{connected:?}");

    // One that accepts connections and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_url = format!("http://{}", silent.local_addr().unwrap());
    let connected = soon(Client::builder().timeout(BRIEF).connect([&silent_url])).await;
    assert!(matches!(connected, Err(Error::Unreachable(_))), "{connected:?}");

    // If there is another server, it is found.
    let node = Node::start().await;
    let client = soon(Client::connect([&silent_url, &node.url])).await.unwrap();
    client.lock("seat").acquire().await.unwrap();
    node.end().await;
}

#[tokio::test]
async fn invalid_addresses_are_refused_with_a_hint() {
    for bad in ["https://127.0.0.1", "http://127.0.0.1", "a b:1", "ftp://x:1", ":7400"] {
        match Client::connect([bad]).await {
            Err(Error::BadAddress(why)) => assert!(why.contains(bad), "{why}"),
            other => panic!("{bad}: {other:?}"),
        }
    }
    for (bad, part) in [
        (":7400", "host is missing"),
        ("http://:7400", "host is missing"),
        ("127.0.0.1", "port is missing"),
        ("127.0.0.1:", "port is missing"),
        ("[::1]", "port is missing"),
        ("127.0.0.1:99999", "65535"),
        ("127.0.0.1:0", "65535"),
        ("[::1]:70000", "65535"),
    ] {
        match Client::connect(bad).await {
            Err(Error::BadAddress(why)) => assert!(why.contains(part), "{why}"),
            other => panic!("{bad}: {other:?}"),
        }
    }
    let none: [&str; 0] = [];
    assert!(matches!(Client::connect(none).await, Err(Error::BadAddress(_))));
    assert!(matches!(Client::connect(" , ").await, Err(Error::BadAddress(_))));
    let node = Node::start().await;
    let without_scheme = node.url.strip_prefix("http://").unwrap();
    Client::connect([without_scheme]).await.unwrap();
    Client::connect(without_scheme).await.unwrap();
    Client::connect(node.url.clone()).await.unwrap();
    let nobody = free_port();
    Client::connect(format!("127.0.0.1:{nobody}, {without_scheme}")).await.unwrap();
    node.end().await;
}

#[tokio::test]
async fn wrong_password_is_refused() {
    let node = Node::start_with(Some("open sesame")).await;
    for wrong in [None, Some("open barley")] {
        let setup = wrong.iter().fold(Client::builder(), |setup, wrong| setup.password(*wrong));
        match soon(setup.connect([&node.url])).await {
            Err(Error::Refused { code, message, hint, .. }) => {
                assert_eq!(code, ErrorCode::Unauthenticated);
                assert!(message.contains("password") && !hint.is_empty(), "{message} {hint}");
            }
            other => panic!("{other:?}"),
        }
    }
    let setup = Client::builder().password("open sesame");
    assert!(!format!("{setup:?}").contains("sesame"));
    let client = setup.connect([&node.url]).await.unwrap();
    let guard = client.lock("seat").acquire().await.unwrap();
    client.register("seat").put("x", &guard).await.unwrap();
    client.register("seat").get().await.unwrap();
    node.end().await;
}

#[tokio::test]
async fn invalid_session_ttls_are_refused() {
    let node = Node::start().await;
    let setup = Client::builder().session_ttl(Duration::from_millis(1));
    match soon(setup.connect([&node.url])).await {
        Err(Error::Refused { code, .. }) => assert_eq!(code, ErrorCode::BadRequest),
        other => panic!("{other:?}"),
    }
    node.end().await;
}

/// A wrong unit must not block a lock forever, and a wait without an owner must have an end.
#[tokio::test]
async fn out_of_range_durations_are_refused() {
    let node = Node::start().await;
    let client = node.client().await;
    let (day, year) = (Duration::from_hours(24), Duration::from_hours(24 * 365));
    match client.lock("seat").ttl(year * 2).acquire().await {
        Err(Error::Refused { code, message, .. }) => {
            assert_eq!(code, ErrorCode::BadRequest);
            assert!(message.contains("a year"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    let held = client.lock("seat").ttl(year).acquire().await.unwrap();
    let mut waits = Box::pin(client.lock("seat").wait(day * 2).acquire());
    assert!(timeout(BRIEF, &mut waits).await.is_err(), "a session may wait for days");

    let mut operator = operator(&node).await;
    let ask = |ttl: Duration, wait: Duration| AcquireAlone {
        acquire: Some(Acquire {
            names: vec!["other".into()],
            ttl_ms: Some(ttl.as_millis() as u64),
            wait_ms: Some(wait.as_millis() as u64),
            ..Acquire::default()
        }),
        request_id: Some("0123456789abcdef".into()),
    };
    let revocation = RevokeRequest {
        name: "seat".into(),
        by: "operator".into(),
        reason: "maintenance".into(),
        within_ms: (year * 2).as_millis() as u64,
        ..RevokeRequest::default()
    };
    let refused = [
        operator.acquire(ask(year * 2, day)).await.unwrap_err(),
        operator.acquire(ask(year, day * 2)).await.unwrap_err(),
        operator.revoke(revocation).await.unwrap_err(),
    ];
    for status in refused {
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    }
    operator.acquire(ask(year, day)).await.expect("the longest that may be");
    drop((held, waits));
    node.end().await;
}

#[tokio::test]
async fn too_many_locks_are_refused_by_the_client() {
    let node = Node::start().await;
    let client = Client::builder().tickets_max(2).connect([&node.url]).await.unwrap();
    let held = client.lock("a").acquire().await.unwrap();
    let mut waits = Box::pin(client.lock("a").acquire());
    assert!(timeout(BRIEF, &mut waits).await.is_err());
    let third = client.lock("b").try_acquire().await;
    assert!(matches!(third, Err(Error::TooMany(_))), "{third:?}");
    held.note(Some(b"questions have room of their own")).await.unwrap();
    held.release().await.unwrap();
    let next = soon(waits).await.unwrap();
    let other = client.lock("b").try_acquire().await.unwrap().unwrap();
    drop((next, other));
    eventually("what is let go makes room", async || {
        matches!(client.lock("a").try_acquire().await, Ok(Some(_)))
    })
    .await;
    node.end().await;
}

#[tokio::test]
async fn requests_beyond_the_servers_window_are_queued() {
    let node = Node::start().await;
    let client = node.client().await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..3_000 {
        let client = client.clone();
        tasks.spawn(async move {
            let guard = client.lock(format!("own/{number}")).acquire().await?;
            guard.release().await
        });
    }
    while let Some(done) = soon(tasks.join_next()).await {
        assert_eq!(done.unwrap(), Ok(()));
    }
    node.end().await;
}

#[tokio::test]
async fn dropped_wait_leaves_the_line_immediately() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let _held = ana.lock("seat").acquire().await.unwrap();
    let mut watch = ana.watch("seat").await.unwrap();
    assert!(timeout(BRIEF, bo.lock("seat").acquire()).await.is_err());
    let event = soon(watch.next()).await.unwrap();
    let cancelled = holdfast_client::EndReason::Cancelled;
    assert!(
        matches!(event, holdfast_client::Event::Ended { how, held: false, .. } if how == cancelled),
        "{event:?}"
    );
    node.end().await;
}

/// A grant that arrived just as its caller left was kept forever.
#[tokio::test]
async fn grant_that_arrives_after_the_caller_left_is_released() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    for round in 0..300_u64 {
        let held = soon(ana.lock("seat").acquire()).await.unwrap();
        let mut waits = Box::pin(bo.lock("seat").acquire());
        let _ = timeout(Duration::from_micros(round * 7 % 1_500), &mut waits).await;
        held.release().await.unwrap();
        // Now the grant is on its way, or has arrived.
        if round % 2 == 0 {
            sleep(Duration::from_micros(round * 11 % 900)).await;
        }
        drop(waits);
    }
    soon(ana.lock("seat").acquire()).await.unwrap();
    node.end().await;
}

#[tokio::test]
async fn abandoned_requests_are_undone_when_the_server_returns() {
    let mut node = Node::start().await;
    let setup = Client::builder().timeout(BRIEF).session_ttl(Duration::from_secs(60));
    let client = setup.connect([&node.url]).await.unwrap();
    node.pause().await;
    // The first may still be sent; the second fails once the client knows that nobody receives it.
    for _ in 0..2 {
        let tried = soon(client.lock("seat").try_acquire()).await;
        assert!(matches!(tried, Err(Error::Unreachable(_) | Error::SessionLost)), "{tried:?}");
    }
    let noted = soon(client.register("seat").get()).await;
    assert!(matches!(noted, Err(Error::Unreachable(_))), "{noted:?}");
    node.go_on().await;
    let other = node.client().await;
    soon(other.lock("seat").acquire()).await.unwrap();
    soon(client.lock("seat").acquire()).await.unwrap();
    node.end().await;
}

/// A wait of one second took as long as the session lived if the connection was cut: 27 seconds.
#[tokio::test]
async fn wait_times_out_while_no_server_answers() {
    let node = Node::start().await;
    let proxy = Proxy::to(&node.url);
    let setup = Client::builder().session_ttl(Duration::from_secs(120));
    let (ana, bo) = (setup.connect([&proxy.url]).await.unwrap(), node.client().await);
    let mut operator = operator(&node).await;
    let held = bo.lock("seat").acquire().await.unwrap();
    let wait = Duration::from_secs(1);
    // One is in line when the connection is cut, one starts after that, one is only an upgrade.
    let in_line = tokio::spawn({
        let ana = ana.clone();
        async move { ana.lock("seat").wait(wait).acquire().await.map(drop) }
    });
    let mut reader = ana.lock("page").shared().acquire().await.unwrap();
    let _other = bo.lock("page").shared().acquire().await.unwrap();
    eventually("it waits", async || show(&mut operator, "seat").await.waiting == 1).await;
    proxy.set(Way::Cut);
    let asked_later = soon(ana.lock("free").wait(wait).acquire()).await;
    assert!(matches!(asked_later, Err(Error::Unreachable(_))), "{asked_later:?}");
    let in_line = soon(in_line).await.unwrap();
    assert!(matches!(in_line, Err(Error::NotAcquired(_))), "{in_line:?}");
    let upgraded = soon(reader.upgrade(Some(wait))).await;
    assert!(matches!(upgraded, Err(Error::Unreachable(_))), "{upgraded:?}");
    proxy.set(Way::Open);
    held.release().await.unwrap();
    for name in ["seat", "free"] {
        soon(bo.lock(name).acquire()).await.unwrap();
    }
    node.end().await;
}

/// `close` took three seconds if its server did not answer, however short the timeout.
#[tokio::test]
async fn close_takes_no_longer_than_the_timeout() {
    let node = Node::start().await;
    let proxy = Proxy::to(&node.url);
    let client = Client::builder().timeout(BRIEF).connect([&proxy.url]).await.unwrap();
    proxy.set(Way::AnswersWait);
    let begun = Instant::now();
    soon(client.close()).await;
    assert!(begun.elapsed() < BRIEF * 8, "{:?}", begun.elapsed());
    node.end().await;
}

/// Unlimited durations panicked.
#[tokio::test]
async fn unlimited_durations_are_accepted() {
    let node = Node::start().await;
    let setup = Client::builder().timeout(Duration::MAX);
    let client = setup.connect([&node.url]).await.unwrap();
    let guard = client.lock("seat").wait(Duration::MAX).acquire().await.unwrap();
    client.register("seat").get().await.unwrap();
    client.lock("other").reentrant().wait(Duration::MAX).acquire().await.unwrap();
    guard.release().await.unwrap();
    for refused in [
        Client::builder().session_ttl(Duration::MAX).connect([&node.url]).await.map(drop),
        client.lock("seat").ttl(Duration::MAX).acquire().await.map(drop),
        client.lock("seat").lock_delay(Duration::MAX).acquire().await.map(drop),
    ] {
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    }
    client.close().await;
    node.end().await;
}
