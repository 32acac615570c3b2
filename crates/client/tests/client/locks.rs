//! Acquiring locks, with and without waiting, and releasing them.

use crate::LONG;
use crate::server::Node;
use holdfast_client::{Client, EndReason, Error, ErrorCode, Health};
use std::time::Duration;
use tokio::time::{sleep, timeout};

#[tokio::test]
async fn locks_are_acquired_and_released_with_rising_tokens() {
    let node = Node::start().await;
    let client = node.client().await;
    let first = client.lock("seat").acquire().await.unwrap();
    assert_eq!(first.health(), Health::Good);
    assert!(first.ending().is_none());
    let token = first.token();
    first.release().await.unwrap();
    let second = client.lock("seat").acquire().await.unwrap();
    assert!(second.token() > token);
    second.release().await.unwrap();
    client.close().await;
    node.end().await;
}

#[tokio::test]
async fn try_is_refused_and_waits_are_served_in_order() {
    let node = Node::start().await;
    let (ana, bo, cy) = (node.client().await, node.client().await, node.client().await);
    let held = ana.lock("seat").acquire().await.unwrap();
    assert!(bo.lock("seat").try_acquire().await.unwrap().is_none());
    let at_once = bo.lock("seat").wait(Duration::ZERO).acquire().await;
    assert!(matches!(at_once, Err(Error::NotAcquired(_))), "{at_once:?}");
    let brief = bo.lock("seat").wait(Duration::from_millis(50)).acquire().await;
    assert!(matches!(brief, Err(Error::NotAcquired(_))), "{brief:?}");

    let bo_waits = tokio::spawn(async move { bo.lock("seat").acquire().await.unwrap() });
    // Bo must be in line before Cy: only a short pause ensures that.
    sleep(Duration::from_millis(200)).await;
    let cy_waits = tokio::spawn(async move { cy.lock("seat").acquire().await.unwrap() });
    sleep(Duration::from_millis(200)).await;
    held.release().await.unwrap();
    let bo_holds = timeout(LONG, bo_waits).await.unwrap().unwrap();
    assert!(!cy_waits.is_finished());
    let token = bo_holds.token();
    bo_holds.release().await.unwrap();
    let cy_holds = timeout(LONG, cy_waits).await.unwrap().unwrap();
    assert!(cy_holds.token() > token);
    assert_eq!(cy_holds.ending().map(|ending| ending.how), Some(EndReason::Released));
    drop(cy_holds);
    node.end().await;
}

#[tokio::test]
async fn next_holder_gets_the_previous_ending_and_note() {
    let node = Node::start().await;
    let ana = node.client().await;
    let guard = ana.lock("seat").note("half paid").label("ana").acquire().await.unwrap();
    // The session ends while the lock is held: that is a death.
    std::mem::forget(guard);
    ana.close().await;
    let bo = node.client().await;
    let guard = timeout(LONG, bo.lock("seat").acquire()).await.unwrap().unwrap();
    let ending = guard.ending().unwrap();
    assert_eq!(ending.how, EndReason::Closed);
    assert_eq!(ending.label.as_deref(), Some(b"ana".as_slice()));
    assert_eq!(ending.note.as_deref(), Some(b"half paid".as_slice()));
    assert!(guard.needs_recovery());
    guard.recovered().await.unwrap();
    guard.release().await.unwrap();
    node.end().await;
}

#[tokio::test]
async fn dropping_a_guard_releases_and_dropping_a_wait_leaves_the_line() {
    let node = Node::start().await;
    let (ana, bo, cy) = (node.client().await, node.client().await, node.client().await);
    let held = ana.lock("seat").acquire().await.unwrap();
    let waited = timeout(Duration::from_millis(300), bo.lock("seat").acquire()).await;
    assert!(waited.is_err());
    drop(held);
    // Bo gave up: if its ticket were still in line, it would be served and held forever.
    let guard = timeout(LONG, cy.lock("seat").acquire()).await.unwrap().unwrap();
    guard.release().await.unwrap();
    node.end().await;
}

#[tokio::test]
async fn own_lease_is_renewed_in_the_background() {
    let node = Node::start().await;
    let client = node.client().await;
    let ttl = Duration::from_millis(600);
    let guard = client.lock("seat").ttl(ttl).acquire().await.unwrap();
    sleep(ttl * 3).await;
    assert!(!matches!(guard.health(), Health::Lost(_)), "{:?}", guard.health());
    let other = node.client().await;
    assert!(other.lock("seat").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    node.end().await;
}

#[tokio::test]
async fn readers_share_and_permits_are_counted() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let first = ana.lock("page").shared().acquire().await.unwrap();
    let second = bo.lock("page").shared().try_acquire().await.unwrap().unwrap();
    assert!(bo.lock("page").try_acquire().await.unwrap().is_none());
    drop((first, second));

    let one = ana.lock("pool").permit_of(2).acquire().await.unwrap();
    let two = bo.lock("pool").permit_of(2).try_acquire().await.unwrap().unwrap();
    assert!(ana.lock("pool").permit_of(2).try_acquire().await.unwrap().is_none());
    drop((one, two));
    node.end().await;
}

#[tokio::test]
async fn declared_deadlocks_are_refused() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let left = ana.lock("left").acquire().await.unwrap();
    let right = bo.lock("right").acquire().await.unwrap();
    let waiting = tokio::spawn(async move {
        let got = ana.lock("right").holding(&left).acquire().await;
        (got, left)
    });
    sleep(Duration::from_millis(200)).await;
    let refused = bo.lock("left").holding(&right).acquire().await;
    let code = match refused {
        Err(Error::Refused { code, .. }) => code,
        other => panic!("{other:?}"),
    };
    assert_eq!(code, ErrorCode::WouldDeadlock);
    right.release().await.unwrap();
    let (got, left) = timeout(LONG, waiting).await.unwrap().unwrap();
    drop((got.unwrap(), left));
    node.end().await;
}

#[tokio::test]
async fn guard_is_lost_before_the_next_grant() {
    let node = Node::start().await;
    let ttl = Duration::from_secs(1);
    let ana = Client::builder().session_ttl(ttl).connect([&node.url]).await.unwrap();
    let guard = ana.lock("seat").acquire().await.unwrap();
    let lost = tokio::spawn(async move {
        let how = guard.lost().await;
        (how, guard)
    });
    node.end().await;
    // Nobody confirms the session any more: its own clock says when to stop.
    let (how, guard) = timeout(LONG, lost).await.unwrap().unwrap();
    assert_eq!(how, EndReason::Expired);
    assert_eq!(guard.health(), Health::Lost(EndReason::Expired));
}

/// Every lock has a label, even if its holder did not set one.
#[tokio::test]
async fn default_label_is_host_and_process() {
    let node = Node::start().await;
    let client = node.client().await;
    let label = async |guard: &holdfast_client::Guard| {
        let holder = client.election(guard.name()).leader().await.unwrap().unwrap();
        String::from_utf8(holder.value.unwrap().to_vec()).unwrap()
    };
    // One has the label of its session, one must have its own when that is over.
    let guards = [
        client.lock("session").acquire().await.unwrap(),
        client.lock("own").ttl(LONG).acquire().await.unwrap(),
    ];
    for guard in &guards {
        let label = label(guard).await;
        let (host, pid) = label.rsplit_once(':').unwrap();
        assert!(!host.is_empty());
        assert_eq!(pid, std::process::id().to_string());
    }
    let named = Client::builder().label("till 3").connect(&node.url).await.unwrap();
    assert_eq!(label(&named.lock("named").acquire().await.unwrap()).await, "till 3");
    let guard = named.lock("other").label("till 4").acquire().await.unwrap();
    assert_eq!(label(&guard).await, "till 4");
    node.end().await;
}

/// A guard could only be released or dropped, so a lock could not be handed over to another process.
#[tokio::test]
async fn detached_lock_is_neither_released_nor_renewed() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let by_session = ana.lock("seat").acquire().await.unwrap();
    let (by_session, error) = by_session.detach().await.expect_err("it ends with its session");
    assert_eq!(error.code(), Some(&ErrorCode::BadRequest));
    by_session.release().await.unwrap();

    let guard = ana.lock("seat").ttl(Duration::from_secs(1)).acquire().await.unwrap();
    let token = guard.token();
    let detached = guard.detach().await.map_err(|(_, error)| error).unwrap();
    assert_eq!((&detached.name[..], detached.token), (&b"seat"[..], token));
    let next = timeout(LONG, bo.lock("seat").acquire()).await.unwrap().unwrap();
    let ending = next.ending().expect("somebody held it before");
    assert_eq!((ending.token, ending.how), (token, EndReason::Expired));
    next.release().await.unwrap();
    node.end().await;
}
