//! After a client has lost its session: definite answers, and notifications about the locks that
//! outlived it.

use crate::cancel::show;
use crate::proxy::{Proxy, Way};
use crate::server::Node;
use crate::{eventually, operator, soon};
use holdfast_client::{Client, EndReason, Error, ErrorCode, Guard, Health};
use holdfast_proto::v1::{ForceRequest, Mode::Exclusive, RevokeRequest};
use std::time::Duration;

const SESSION_TTL: Duration = Duration::from_secs(1);

/// So long that a test fails before even a quarter of it has passed.
const OWN_TTL: Duration = Duration::from_mins(10);

async fn connect(proxy: &Proxy) -> Client {
    Client::builder().session_ttl(SESSION_TTL).connect([&proxy.url]).await.unwrap()
}

fn leases() -> [(&'static str, Option<Duration>); 2] {
    [("session", None), ("own", Some(OWN_TTL))]
}

async fn reader(client: &Client, name: &str, ttl: Option<Duration>) -> Guard {
    let lock = client.lock(name).shared();
    let lock = ttl.into_iter().fold(lock, |lock, ttl| lock.ttl(ttl));
    soon(lock.acquire()).await.unwrap()
}

/// An upgrade was served, and its answer lost with the session. `release()` then released the
/// reader's ticket, which the server had ended with the upgrade: it returned Ok, and the writer's
/// ticket stayed held by nobody until its lease ran out.
#[tokio::test]
async fn release_is_definite_after_losing_the_upgrade_reply_with_the_session() {
    let node = Node::start().await;
    let proxy = Proxy::to(&node.url);
    let mut operator = operator(&node).await;
    for (name, ttl) in leases() {
        let ana = connect(&proxy).await;
        let mut guard = reader(&ana, name, ttl).await;
        proxy.set(Way::AnswersWait);
        assert_eq!(soon(guard.upgrade(None)).await, Err(Error::SessionLost));
        assert_eq!(show(&mut operator, name).await.holders[0].mode(), Exclusive);
        proxy.set(Way::Open);
        let released = soon(guard.release()).await;
        assert_eq!(show(&mut operator, name).await.holding, 0, "{name}: {released:?}");
        let expected = if ttl.is_some() { Ok(()) } else { Err(Error::Over(EndReason::Expired)) };
        assert_eq!(released, expected, "{name}");
    }
    node.end().await;
}

/// The same for an upgrade that was waiting when its session was lost, and was served after that.
#[tokio::test]
async fn release_is_definite_if_the_upgrade_was_granted_as_the_session_was_lost() {
    let node = Node::start().await;
    let proxy = Proxy::to(&node.url);
    let bo = node.client().await;
    let mut operator = operator(&node).await;
    for (name, ttl) in leases() {
        let ana = connect(&proxy).await;
        let mut guard = reader(&ana, name, ttl).await;
        let other = reader(&bo, name, None).await;
        let upgrade = tokio::spawn(async move {
            let upgraded = guard.upgrade(None).await;
            (guard, upgraded)
        });
        let waits = async || show(&mut operator, name).await.waiting == 1;
        eventually("the upgrade waits", waits).await;
        proxy.set(Way::Cut);
        other.release().await.unwrap();
        assert_eq!(show(&mut operator, name).await.holders[0].mode(), Exclusive);
        let (guard, upgraded) = soon(upgrade).await.unwrap();
        assert_eq!(upgraded, Err(Error::SessionLost), "{name}");
        proxy.set(Way::Open);
        let released = soon(guard.release()).await;
        assert_eq!(show(&mut operator, name).await.holding, 0, "{name}: {released:?}");
        let expected = if ttl.is_some() { Ok(()) } else { Err(Error::Over(EndReason::Expired)) };
        assert_eq!(released, expected, "{name}");
    }
    node.end().await;
}

/// The same if the guard is not released but kept: it is the writer's, and its lease is renewed. It
/// used to be lost, while its ticket stayed held.
#[tokio::test]
async fn guard_is_exclusive_if_its_upgrade_was_granted_as_the_session_was_lost() {
    let node = Node::start().await;
    let proxy = Proxy::to(&node.url);
    let (ana, bo) = (connect(&proxy).await, node.client().await);
    let mut operator = operator(&node).await;
    // A holder that died before: the guard must still report that.
    bo.clone().lock("page").note("half paid").acquire().await.map(std::mem::forget).unwrap();
    bo.close().await;
    let mut guard = reader(&ana, "page", Some(OWN_TTL)).await;
    let read_with = guard.token();
    assert!(guard.needs_recovery());
    proxy.set(Way::AnswersWait);
    assert_eq!(soon(guard.upgrade(None)).await, Err(Error::SessionLost));
    proxy.set(Way::Open);
    soon(guard.note(Some(b"still here"))).await.unwrap();
    assert!(!guard.is_shared() && guard.token() > read_with);
    assert_eq!(guard.health(), Health::Good);
    assert!(guard.needs_recovery());
    assert_eq!(guard.deaths()[0].note.as_deref(), Some(&b"half paid"[..]));
    let holders = show(&mut operator, "page").await.holders;
    assert_eq!(holders.len(), 1);
    assert_eq!(holders[0].note.as_deref(), Some(&b"still here"[..]));
    // Dropping it releases it.
    drop(guard);
    let free = async || show(&mut operator, "page").await.holding == 0;
    eventually("it is released", free).await;
    node.end().await;
}

fn force(name: &'static str) -> ForceRequest {
    let (by, reason) = ("operator".into(), "maintenance".into());
    ForceRequest { name: name.into(), token: None, by, reason }
}

/// Loses the session of a client, and returns when it has another one.
async fn lose_session(client: &Client, proxy: &Proxy, meanwhile: impl AsyncFnOnce()) {
    let canary = soon(client.lock("canary").acquire()).await.unwrap();
    proxy.set(Way::Cut);
    soon(canary.lost()).await;
    meanwhile().await;
    proxy.set(Way::Open);
    soon(client.lock("canary").acquire()).await.unwrap();
}

/// A guard with a lease of its own that had outlived its session reported that it was good for up
/// to a quarter of its TTL after it was forced out: the server notified only the session that it
/// was acquired in, which was over.
#[tokio::test]
async fn guard_that_outlived_its_session_learns_it_was_forced_out() {
    let node = Node::start().await;
    let proxy = Proxy::to(&node.url);
    let mut operator = operator(&node).await;
    let ana = connect(&proxy).await;
    let early = ana.lock("early").ttl(OWN_TTL).acquire().await.unwrap();
    let late = ana.lock("late").ttl(OWN_TTL).acquire().await.unwrap();
    let (mut before, mut after) = (operator.clone(), operator.clone());
    lose_session(&ana, &proxy, async || {
        before.force(force("early")).await.unwrap();
    })
    .await;
    assert_eq!(soon(early.lost()).await, EndReason::Forced);
    assert_eq!(late.health(), Health::Good);
    after.force(force("late")).await.unwrap();
    assert_eq!(soon(late.lost()).await, EndReason::Forced);
    operator.force(force("late")).await.unwrap_err();
    node.end().await;
}

/// A holder that had outlived its session was never notified of a request to release.
#[tokio::test]
async fn guard_that_outlived_its_session_receives_revocations() {
    let node = Node::start().await;
    let proxy = Proxy::to(&node.url);
    let mut operator = operator(&node).await;
    let ana = connect(&proxy).await;
    let guard = ana.lock("seat").ttl(OWN_TTL).acquire().await.unwrap();
    lose_session(&ana, &proxy, async || {}).await;
    let ask = RevokeRequest {
        name: "seat".into(),
        by: "operator".into(),
        reason: "maintenance".into(),
        within_ms: 60_000,
        ..RevokeRequest::default()
    };
    // Repeated until it is received: the client may not be watching yet.
    let asks = async {
        loop {
            operator.revoke(ask.clone()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let asked = tokio::select! {
        asked = soon(guard.asked_to_let_go()) => asked,
        () = asks => unreachable!("it goes on asking"),
    };
    assert_eq!(asked.reason, "maintenance");
    node.end().await;
}

/// Releases that were still to be sent were forgotten when a server refused to open a session, for
/// example after a password change; the locks stayed held until their leases ran out.
#[tokio::test]
async fn release_is_sent_even_if_the_new_session_is_refused() {
    let mut node = Node::start().await;
    let brief = Duration::from_millis(500);
    let setup = Client::builder().session_ttl(brief * 2).timeout(brief);
    let ana = setup.connect([&node.url]).await.unwrap();
    let canary = ana.lock("canary").acquire().await.unwrap();
    let dropped = ana.lock("dropped").ttl(OWN_TTL).acquire().await.unwrap();
    let released = ana.lock("released").ttl(OWN_TTL).acquire().await.unwrap();
    node.pause().await;
    drop(dropped);
    let released = tokio::spawn(released.release());
    soon(canary.lost()).await;
    node.set_password(Some("open sesame"));
    node.go_on().await;
    // The client has been refused by now.
    eventually("the server refuses it", async || {
        let refused = soon(ana.lock("other").acquire()).await;
        matches!(refused, Err(Error::Refused { code: ErrorCode::Unauthenticated, .. }))
    })
    .await;
    let released = soon(released).await.unwrap();
    assert!(matches!(released, Err(Error::Unreachable(_))), "nobody knows: {released:?}");
    node.pause().await;
    node.set_password(None);
    node.go_on().await;
    let mut operator = operator(&node).await;
    for name in ["dropped", "released"] {
        let free = async || show(&mut operator, name).await.holding == 0;
        eventually("it is released", free).await;
    }
    node.end().await;
}

/// An acquire with a lease of its own was forgotten if its session was lost before the answer
/// arrived, and the lock was held by nobody until that lease ran out.
#[tokio::test]
async fn acquire_whose_reply_was_lost_with_the_session_is_released() {
    let node = Node::start().await;
    let proxy = Proxy::to(&node.url);
    let bo = node.client().await;
    let mut operator = operator(&node).await;
    // The server keeps the session for as long as the client tries: it is asked about it every
    // second.
    let setup = Client::builder().session_ttl(Duration::from_secs(4));
    for (name, waits, dropped) in [
        ("dropped", false, true),
        ("kept", false, false),
        ("dropped in line", true, true),
        ("kept in line", true, false),
    ] {
        let ana = setup.clone().connect([&proxy.url]).await.unwrap();
        let held = if waits { Some(bo.lock(name).acquire().await.unwrap()) } else { None };
        let canary = ana.lock("canary").acquire().await.unwrap();
        proxy.set(Way::AnswersWait);
        let lock = ana.lock(name).ttl(OWN_TTL);
        let acquire = tokio::spawn(async move { lock.acquire().await.map(drop) });
        let asked = async || {
            let lock = show(&mut operator, name).await;
            lock.holding + lock.waiting == 1 + u64::from(waits)
        };
        eventually("it is asked for", asked).await;
        if dropped {
            acquire.abort();
            soon(canary.lost()).await;
        } else {
            assert_eq!(soon(acquire).await.unwrap(), Err(Error::SessionLost), "{name}");
        }
        if let Some(held) = held {
            held.release().await.unwrap();
        }
        proxy.set(Way::Open);
        let free = async || {
            let lock = show(&mut operator, name).await;
            lock.holding + lock.waiting == 0
        };
        eventually("it is given back", free).await;
        soon(ana.close()).await;
    }
    node.end().await;
}

/// A cluster that was started again, from an empty directory, drew the same number for the client's
/// next session; so the guards of the old cluster's locks were taken for that session's, and
/// reported that they were good for up to a quarter of their TTL.
#[tokio::test]
async fn guard_is_lost_with_its_cluster() {
    let mut node = Node::start().await;
    let ana = node.client().await;
    let old = ana.lock("seat").ttl(OWN_TTL).acquire().await.unwrap();
    node.pause().await;
    node.wipe();
    node.go_on().await;
    soon(old.lost()).await;
    // It also drew the same number for a ticket. The end of the old guard is not that of the new
    // one.
    let new = soon(ana.lock("other").ttl(OWN_TTL).acquire()).await.unwrap();
    assert_eq!(new.token(), old.token());
    drop(old);
    assert_eq!(new.health(), Health::Good);
    let mut operator = operator(&node).await;
    operator.force(force("other")).await.unwrap();
    assert_eq!(soon(new.lost()).await, EndReason::Forced);
    node.end().await;
}
