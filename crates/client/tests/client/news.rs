//! What a holder is notified of, and what the next one learns about it.

use crate::proxy::{Proxy, Way};
use crate::server::Node;
use crate::{operator, soon};
use holdfast_client::{Client, EndReason, Error, GuardEvent, Health};
use holdfast_proto::v1::{ForceRequest, RevokeRequest};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use tokio::sync::oneshot;

/// Asks the holders of a lock to release.
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

fn force(name: &'static str) -> ForceRequest {
    let (by, reason) = ("operator".into(), "no".into());
    ForceRequest { name: name.into(), token: None, by, reason }
}

#[tokio::test]
async fn holder_receives_revocations() {
    let node = Node::start().await;
    let client = node.client().await;
    let guard = client.lock("seat").acquire().await.unwrap();
    revoke(&node, "seat", Duration::from_secs(60), false).await;
    let asked = soon(guard.asked_to_let_go()).await;
    assert_eq!((&asked.by[..], &asked.reason[..]), (&b"operator"[..], &b"maintenance"[..]));
    assert!(!asked.force && asked.within > Duration::ZERO);
    assert_eq!(guard.health(), Health::Good, "it was only asked");
    // This includes one that starts to listen afterwards.
    let mut events = guard.events();
    assert_eq!(soon(events.next()).await, Some(GuardEvent::Revocation(asked)));
    guard.release().await.unwrap();
    node.end().await;
}

#[tokio::test]
async fn forced_lock_is_lost_and_release_reports_why() {
    let node = Node::start().await;
    let client = node.client().await;
    let guard = client.lock("seat").acquire().await.unwrap();
    revoke(&node, "seat", Duration::from_secs(1), true).await;
    let mut events = guard.events();
    assert!(
        matches!(soon(events.next()).await, Some(GuardEvent::Revocation(asked)) if asked.force)
    );
    assert_eq!(soon(events.next()).await, Some(GuardEvent::Lost(EndReason::Forced)));
    assert_eq!(soon(events.next()).await, None);
    assert_eq!(soon(guard.lost()).await, EndReason::Forced);
    assert_eq!(guard.remaining(), Duration::ZERO);
    // The guard is lost a little before the lock is broken.
    let next = soon(client.lock("seat").acquire()).await.unwrap();
    assert_eq!(guard.release().await, Err(Error::Over(EndReason::Forced)));
    assert_eq!(next.ending().unwrap().how, EndReason::Forced);
    assert!(next.needs_recovery() && next.deaths().len() == 1);
    node.end().await;
}

#[tokio::test]
async fn forced_out_waiter_gets_an_error() {
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
    assert_eq!(thrown_out.map(drop), Err(Error::Over(EndReason::Forced)));
    assert_eq!(guard.health(), Health::Good);
    soon(watch.next()).await.unwrap();
    node.end().await;
}

#[tokio::test]
async fn last_note_and_label_reach_the_next_holder() {
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
    assert_eq!((ending.how, ending.token), (EndReason::Released, token));
    assert_eq!(ending.name, "seat");
    assert_eq!(ending.label.as_deref(), Some(&b"ana"[..]));
    assert_eq!(ending.note.as_deref(), Some(&b"half paid"[..]));
    node.end().await;
}

#[tokio::test]
async fn unconfirmed_holder_is_in_jeopardy_before_it_is_lost() {
    let mut node = Node::start().await;
    let ttl = Duration::from_secs(2);
    let setup = holdfast_client::Client::builder().session_ttl(ttl);
    let client = setup.connect([&node.url]).await.unwrap();
    let guard = client.lock("seat").acquire().await.unwrap();
    assert!(guard.remaining() > Duration::ZERO && guard.remaining() < ttl);
    let mut events = guard.events();
    node.pause().await;
    assert_eq!(soon(events.next()).await, Some(GuardEvent::Jeopardy));
    assert_eq!(guard.health(), Health::Jeopardy);
    assert_eq!(soon(events.next()).await, Some(GuardEvent::Lost(EndReason::Expired)));
    assert_eq!(guard.health(), Health::Lost(EndReason::Expired));
}

/// An acquire and a force were in one entry of the log: the holder received its grant, and nothing
/// else about the ticket, so its guard stayed good while somebody else held the lock. This happened
/// to a third of such guards.
#[tokio::test]
async fn holder_forced_out_at_its_grant_is_notified() {
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
            assert_eq!(soon(guard.lost()).await, EndReason::Forced, "round {round}");
            assert!(next.token() > guard.token());
            lost += 1;
        }
    }
    assert!(lost > 0, "no force came in time: this has shown nothing");
    node.end().await;
}

/// A holder was notified that its lock would be broken in two seconds, and then received nothing
/// more because its connection hung. It reported that it was good while the next holder had the
/// lock.
#[tokio::test]
async fn guard_is_lost_when_a_forced_revocation_expires() {
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
        assert_eq!(lost, EndReason::Forced);
        assert_eq!(guard.health(), Health::Lost(EndReason::Forced));
        assert_eq!(guard.remaining(), Duration::ZERO);
        next.unwrap().release().await.unwrap();
        proxy.set(Way::Open);
    }
    node.end().await;
}

/// Polls a future where it is woken: on the waking thread, before that continues.
struct Inline {
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    again: AtomicBool,
}

impl Inline {
    /// Returns what the future returns once it is done.
    fn run<T: Send + 'static>(
        future: impl Future<Output = T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (done, wait) = oneshot::channel();
        let future = Box::pin(async move { drop(done.send(future.await)) });
        let again = AtomicBool::new(false);
        Arc::new(Self { future: Mutex::new(Some(future)), again }).wake();
        wait
    }
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        self.again.store(true, Ordering::SeqCst);
        let waker = Waker::from(self.clone());
        while self.again.load(Ordering::SeqCst) {
            let mut future = match self.future.try_lock() {
                Ok(future) => future,
                // The thread that polls it sees that it was woken.
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(_)) => panic!("it has panicked"),
            };
            self.again.store(false, Ordering::SeqCst);
            let Some(polled) = future.as_mut() else { return };
            if polled.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                *future = None;
            }
        }
    }
}

// While the driver notified a guard, it held the guard's ticket too. A holder that reacted before
// the driver was done looked like one of two guards: its release returned `Ok` at once, although
// the lock was still held, or was lost.
#[tokio::test]
async fn guard_reacting_to_an_event_is_the_only_holder() {
    let node = Node::start().await;
    let client = node.client().await;
    let guard = client.lock("seat").acquire().await.unwrap();
    let released = Inline::run(async move {
        guard.lost().await;
        guard.release().await
    });
    operator(&node).await.force(force("seat")).await.unwrap();
    assert_eq!(soon(released).await.unwrap(), Err(Error::Over(EndReason::Forced)));

    let guard = client.lock("row").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let detached = Inline::run(async move {
        guard.asked_to_let_go().await;
        guard.detach().await.map(drop).map_err(|(_, error)| error)
    });
    revoke(&node, "row", Duration::from_secs(60), false).await;
    assert_eq!(soon(detached).await.unwrap(), Ok(()));

    let mut guard = client.lock("house").shared().acquire().await.unwrap();
    let upgraded = Inline::run(async move {
        guard.asked_to_let_go().await;
        guard.upgrade(None).await
    });
    revoke(&node, "house", Duration::from_secs(60), false).await;
    assert_eq!(soon(upgraded).await.unwrap(), Ok(()));
    node.end().await;
}

// A broken lock could still be detached: the process that it was handed to believed that it held
// the lock.
#[tokio::test]
async fn lost_locks_cannot_be_detached() {
    let node = Node::start().await;
    let client = node.client().await;
    let guard = client.lock("seat").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    operator(&node).await.force(force("seat")).await.unwrap();
    soon(guard.lost()).await;
    let (guard, error) = guard.detach().await.map(drop).unwrap_err();
    assert_eq!(error, Error::Over(EndReason::Forced));
    assert_eq!(guard.release().await, Err(Error::Over(EndReason::Forced)));
    node.end().await;
}
