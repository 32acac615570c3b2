//! What a holder hears while it holds, and what the next one hears of it.

use crate::proxy::{Proxy, Way};
use crate::server::Node;
use crate::{operator, soon};
use holdfast_client::{Client, Error, Health, How, News};
use holdfast_proto::v1::{ForceRequest, RevokeRequest};
use std::time::Duration;

/// Somebody asks the holders of a lock to let go.
async fn revoke(node: &Node, name: &'static str, within: Duration, force: bool) {
    let mut operator = operator(node).await;
    let request = RevokeRequest {
        name: name.into(),
        token: None,
        by: "operator".into(),
        reason: "maintenance".into(),
        within_ms: within.as_millis() as u64,
        force,
    };
    operator.revoke(request).await.unwrap();
}

#[tokio::test]
async fn a_holder_hears_that_it_is_asked_to_let_go() {
    let node = Node::start().await;
    let client = node.client().await;
    let guard = client.lock("seat").acquire().await.unwrap();
    revoke(&node, "seat", Duration::from_secs(60), false).await;
    let asked = soon(guard.asked_to_let_go()).await;
    assert_eq!((&asked.by[..], &asked.reason[..]), (&b"operator"[..], &b"maintenance"[..]));
    assert!(!asked.force && asked.within > Duration::ZERO);
    assert_eq!(guard.health(), Health::Good, "it was only asked");
    // Also one that begins to listen afterwards.
    let mut events = guard.events();
    assert_eq!(soon(events.next()).await, Some(News::Revocation(asked)));
    guard.release().await.unwrap();
    node.end().await;
}

#[tokio::test]
async fn a_lock_that_is_taken_away_is_lost_and_release_says_how() {
    let node = Node::start().await;
    let client = node.client().await;
    let guard = client.lock("seat").acquire().await.unwrap();
    revoke(&node, "seat", Duration::from_secs(1), true).await;
    let mut events = guard.events();
    assert!(matches!(soon(events.next()).await, Some(News::Revocation(asked)) if asked.force));
    assert_eq!(soon(events.next()).await, Some(News::Lost(How::Forced)));
    assert_eq!(soon(events.next()).await, None);
    assert_eq!(soon(guard.lost()).await, How::Forced);
    assert_eq!(guard.remaining(), Duration::ZERO);
    // The guard is lost a little before the lock is taken away.
    let next = soon(client.lock("seat").acquire()).await.unwrap();
    assert_eq!(guard.release().await, Err(Error::Over(How::Forced)));
    assert_eq!(next.ending().unwrap().how, How::Forced);
    assert!(next.needs_recovery() && next.deaths().len() == 1);
    node.end().await;
}

#[tokio::test]
async fn a_waiter_that_is_thrown_out_hears_so() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let mut watch = ana.watch("seat").await.unwrap();
    let guard = ana.lock("seat").acquire().await.unwrap();
    let waits = tokio::spawn(async move { bo.lock("seat").acquire().await });
    // Its number is the next one.
    let mut operator = operator(&node).await;
    let force = ForceRequest {
        name: "seat".into(),
        token: Some(guard.token().get() + 1),
        by: "operator".into(),
        reason: "no".into(),
    };
    crate::eventually("bo stands in line", async || operator.force(force.clone()).await.is_ok())
        .await;
    let thrown_out = soon(waits).await.unwrap();
    assert_eq!(thrown_out.map(drop), Err(Error::Over(How::Forced)));
    assert_eq!(guard.health(), Health::Good);
    soon(watch.next()).await.unwrap();
    node.end().await;
}

#[tokio::test]
async fn the_last_note_and_the_label_reach_the_next_holder() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let guard = ana.lock("seat").label("ana").note("begun").acquire().await.unwrap();
    guard.note(Some(b"half paid")).await.unwrap();
    let waits = tokio::spawn(async move {
        let guard = bo.lock("seat").acquire().await.unwrap();
        guard.ending().cloned().unwrap()
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let token = guard.token();
    guard.release().await.unwrap();
    let ending = soon(waits).await.unwrap();
    assert_eq!((ending.how, ending.token), (How::Released, token));
    assert_eq!(ending.name, "seat");
    assert_eq!(ending.label.as_deref(), Some(&b"ana"[..]));
    assert_eq!(ending.note.as_deref(), Some(&b"half paid"[..]));
    node.end().await;
}

#[tokio::test]
async fn a_holder_that_is_not_confirmed_is_in_jeopardy_before_it_is_lost() {
    let mut node = Node::start().await;
    let ttl = Duration::from_secs(2);
    let setup = holdfast_client::Client::builder().session_ttl(ttl);
    let client = setup.connect([&node.url]).await.unwrap();
    let guard = client.lock("seat").acquire().await.unwrap();
    assert!(guard.remaining() > Duration::ZERO && guard.remaining() < ttl);
    let mut events = guard.events();
    node.pause().await;
    assert_eq!(soon(events.next()).await, Some(News::Jeopardy));
    assert_eq!(guard.health(), Health::Jeopardy);
    assert_eq!(soon(events.next()).await, Some(News::Lost(How::Expired)));
    assert_eq!(guard.health(), Health::Lost(How::Expired));
}

/// An acquire and a force that went into one entry of the log: the holder was told of its grant, and
/// with that nothing else about the ticket, so its guard stayed good while somebody else held the
/// lock. A third of such guards did.
#[tokio::test]
async fn a_holder_that_is_forced_out_as_it_is_granted_hears_so() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let mut operator = operator(&node).await;
    let mut lost = 0;
    for round in 0..150 {
        let name = format!("seat-{round}");
        let force = ForceRequest {
            name: name.clone().into(),
            token: None,
            by: "operator".into(),
            reason: "no".into(),
        };
        let (guard, forced) = tokio::join!(ana.lock(&name).acquire(), operator.force(force));
        let guard = guard.unwrap();
        if forced.is_ok_and(|forced| forced.into_inner().count == 1) {
            let next = bo.lock(&name).try_acquire().await.unwrap().unwrap();
            assert_eq!(soon(guard.lost()).await, How::Forced, "round {round}");
            assert!(next.token() > guard.token());
            lost += 1;
        }
    }
    assert!(lost > 0, "no force came in time: this has shown nothing");
    node.end().await;
}

/// A holder that had heard that its lock would be taken away in two seconds, and then heard nothing
/// more because its connection hung, said that it was good while the next one held the lock.
#[tokio::test]
async fn a_guard_is_lost_when_the_time_of_a_forced_revocation_is_over() {
    let node = Node::start().await;
    let proxy = Proxy::to(&node.url);
    let setup = Client::builder().session_ttl(Duration::from_hours(1));
    let bo = node.client().await;
    for own_lease in [false, true] {
        let ana = setup.clone().connect([&proxy.url]).await.unwrap();
        let lock = ana.lock("seat");
        let lock = if own_lease { lock.ttl(Duration::from_hours(1)) } else { lock };
        let guard = lock.acquire().await.unwrap();
        revoke(&node, "seat", Duration::from_secs(2), true).await;
        soon(guard.asked_to_let_go()).await;
        proxy.set(Way::Stalled);
        assert!(guard.remaining() <= Duration::from_secs(2));
        let (lost, next) =
            soon(async { tokio::join!(guard.lost(), bo.lock("seat").acquire()) }).await;
        assert_eq!(lost, How::Forced);
        assert_eq!(guard.health(), Health::Lost(How::Forced));
        assert_eq!(guard.remaining(), Duration::ZERO);
        next.unwrap().release().await.unwrap();
        proxy.set(Way::Open);
    }
    node.end().await;
}
