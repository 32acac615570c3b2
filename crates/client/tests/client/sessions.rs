//! What happens to locks when servers fail and return, and when sessions end.

use crate::proxy::{Proxy, Way};
use crate::server::Node;
use crate::{eventually, soon};
use holdfast_client::{Client, EndReason, Error, Health};
use std::time::Duration;
use tokio::time::sleep;

const SHORT: Duration = Duration::from_secs(1);

#[tokio::test]
async fn server_restart_within_the_ttl_loses_nothing() {
    let mut node = Node::start().await;
    let client = node.client().await;
    let guard = client.lock("seat").acquire().await.unwrap();
    let other = node.client().await;
    let waits = tokio::spawn(async move { other.lock("seat").acquire().await });
    sleep(Duration::from_millis(200)).await;
    node.pause().await;
    let noted = tokio::spawn(async move {
        // Sent while no server answers: it continues until one does.
        guard.note(Some(b"still here")).await.unwrap();
        guard
    });
    node.go_on().await;
    let guard = soon(noted).await.unwrap();
    assert_eq!(guard.health(), Health::Good);
    assert!(!waits.is_finished());
    guard.release().await.unwrap();
    let next = soon(waits).await.unwrap().unwrap();
    assert_eq!(next.ending().unwrap().note.as_deref(), Some(&b"still here"[..]));
    node.end().await;
}

#[tokio::test]
async fn lock_with_its_own_lease_outlives_its_session() {
    let mut node = Node::start().await;
    let client = Client::builder().session_ttl(SHORT).connect([&node.url]).await.unwrap();
    let by_session = client.lock("session").acquire().await.unwrap();
    let own = client.lock("own").ttl(Duration::from_secs(20)).acquire().await.unwrap();
    node.pause().await;
    assert_eq!(soon(by_session.lost()).await, EndReason::Expired);
    assert_ne!(own.health(), Health::Lost(EndReason::Expired));
    node.go_on().await;

    // Through a new session, by its secret.
    soon(own.note(Some(b"still here"))).await.unwrap();
    // It may have just been renewed, so it need not exceed its current value: any rise will do.
    let mut last = own.remaining();
    let rises = async || {
        let now = own.remaining();
        now > std::mem::replace(&mut last, now)
    };
    eventually("it is renewed", rises).await;
    let other = node.client().await;
    assert!(other.lock("own").try_acquire().await.unwrap().is_none());
    own.release().await.unwrap();
    other.lock("own").try_acquire().await.unwrap().unwrap();
    node.end().await;
}

#[tokio::test]
async fn release_is_definite_even_if_its_session_is_lost() {
    let mut node = Node::start().await;
    let client = Client::builder().session_ttl(SHORT).connect([&node.url]).await.unwrap();
    let (guard, canary) = (
        client.lock("seat").acquire().await.unwrap(),
        client.lock("other").acquire().await.unwrap(),
    );
    node.pause().await;
    let releases = tokio::spawn(guard.release());
    soon(canary.lost()).await;
    assert!(!releases.is_finished(), "nobody can know yet");
    node.go_on().await;
    // It was still held, or its session had ended: either way the answer is definite.
    let released = soon(releases).await.unwrap();
    assert!(matches!(released, Ok(()) | Err(Error::Over(EndReason::Expired))), "{released:?}");
    let other = node.client().await;
    soon(other.lock("seat").acquire()).await.unwrap();
    node.end().await;
}

#[tokio::test]
async fn dropped_lost_guard_counts_as_unfinished() {
    let mut node = Node::start().await;
    let client = Client::builder().session_ttl(SHORT).connect([&node.url]).await.unwrap();
    let guard = client.lock("seat").note("half paid").acquire().await.unwrap();
    node.pause().await;
    soon(guard.lost()).await;
    drop(guard);
    node.go_on().await;
    let other = node.client().await;
    let next = soon(other.lock("seat").acquire()).await.unwrap();
    assert_eq!(next.ending().unwrap().how, EndReason::Expired);
    assert!(next.needs_recovery());
    node.end().await;
}

#[tokio::test]
async fn close_ends_session_leases_and_refuses_later_calls() {
    let node = Node::start().await;
    let client = node.client().await;
    let guard = client.lock("seat").acquire().await.unwrap();
    client.clone().close().await;
    assert_eq!(guard.health(), Health::Lost(EndReason::Closed));
    assert_eq!(client.lock("seat").acquire().await.map(drop), Err(Error::Closed));
    assert_eq!(guard.release().await, Err(Error::Closed));
    let other = node.client().await;
    assert_eq!(
        other.lock("seat").acquire().await.unwrap().ending().unwrap().how,
        EndReason::Closed
    );
    node.end().await;
}

#[tokio::test]
async fn dropping_the_last_handle_releases_everything() {
    let node = Node::start().await;
    let other = node.client().await;
    for ttl in [None, Some(Duration::from_secs(3_600))] {
        let client = node.client().await;
        let lock = client.lock("seat");
        let lock = ttl.into_iter().fold(lock, |lock, ttl| lock.ttl(ttl));
        let guard = lock.acquire().await.unwrap();
        drop(client);
        drop(guard);
        let next = soon(other.lock("seat").acquire()).await.unwrap();
        assert!(!next.needs_recovery(), "it was let go in order: {:?}", next.ending());
    }
    node.end().await;
}

/// A session that took almost its TTL to open was used nevertheless, and lost at once with the
/// requests in it.
#[tokio::test]
async fn session_that_opened_too_late_is_not_used() {
    let node = Node::start().await;
    for delay_ms in [750, 850, 930] {
        let proxy = Proxy::to(&node.url);
        proxy.set(Way::AnswersWait);
        let setup = Client::builder().session_ttl(SHORT);
        let (opens, ()) = tokio::join!(setup.connect(&proxy.url), async {
            sleep(Duration::from_millis(delay_ms)).await;
            proxy.set(Way::Open);
        });
        let guard = soon(opens.unwrap().lock("seat").acquire()).await.unwrap();
        guard.release().await.unwrap();
    }
    node.end().await;
}
