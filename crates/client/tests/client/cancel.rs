//! Futures that are dropped before they are done: afterwards guards and server agree, and nothing
//! is left held or waiting.

use crate::proxy::{Proxy, Way};
use crate::server::Node;
use crate::{eventually, operator, soon};
use holdfast_client::{Client, EndReason, Error, Guard, Health};
use holdfast_proto::v1::Mode::{Exclusive, Shared};
use holdfast_proto::v1::holdfast_client::HoldfastClient;
use holdfast_proto::v1::{self as proto, ShowRequest};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;

/// Longer than any test runs.
const OWN_TTL: Duration = Duration::from_mins(10);

type Operator = HoldfastClient<Channel>;

pub(crate) async fn show(operator: &mut Operator, name: &str) -> proto::Lock {
    let request = ShowRequest { name: name.to_owned().into(), stale: false };
    operator.show(request).await.unwrap().into_inner()
}

/// Polls a future this many times, with these pauses in between, and drops it.
pub(crate) async fn poll_times<F: Future>(
    future: F,
    times: usize,
    mut pause: impl FnMut() -> Duration,
) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..times {
        if let Poll::Ready(output) = poll_once(future.as_mut()).await {
            return Some(output);
        }
        sleep(pause()).await;
    }
    None
}

async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// The server and the guard agree on who holds the lock.
async fn assert_agree(operator: &mut Operator, guard: &Guard, when: &str) {
    // Answered once everything before it is settled.
    assert_eq!(guard.note(None).await, Ok(()), "{when}");
    assert_eq!(guard.health(), Health::Good, "{when}");
    let holders = show(operator, "page").await.holders;
    let holders: Vec<_> = holders.iter().map(|held| (held.token, held.mode() == Shared)).collect();
    assert_eq!(holders, [(guard.token().get(), guard.is_shared())], "{when}");
}

/// A dropped `upgrade()` left a shared guard that reported that it was good and held nothing: the
/// upgrade was served while its future was being dropped, the server ended the shared ticket, and
/// the client released the exclusive one, because nobody waited for it any more.
#[tokio::test]
async fn upgrade_granted_while_dropped_makes_the_guard_exclusive() {
    let node = Node::start().await;
    let proxy = Proxy::to(&node.url);
    let (ana, bo) = (Client::connect([&proxy.url]).await.unwrap(), node.client().await);
    let mut operator = operator(&node).await;
    for lease in [None, Some(OWN_TTL)] {
        let lock = ana.lock("page").shared();
        let lock = lease.into_iter().fold(lock, |lock, ttl| lock.ttl(ttl));
        let mut guard = soon(lock.acquire()).await.unwrap();
        let read_with = guard.token();
        let other = soon(bo.lock("page").shared().acquire()).await.unwrap();
        {
            let mut upgrade = pin!(guard.upgrade(None));
            assert!(poll_once(upgrade.as_mut()).await.is_pending());
            eventually("the upgrade waits", async || {
                show(&mut operator, "page").await.waiting == 1
            })
            .await;
            proxy.set(Way::AnswersWait);
            other.release().await.unwrap();
            assert_eq!(show(&mut operator, "page").await.holders[0].mode(), Exclusive);
        }
        // It holds more than it knows, and reports what is certain.
        assert!(guard.is_shared() && guard.health() == Health::Good);
        proxy.set(Way::Open);
        soon(assert_agree(&mut operator, &guard, "after the upgrade")).await;
        assert!(!guard.is_shared() && guard.token() > read_with);
        guard.downgrade().await.unwrap();
        soon(assert_agree(&mut operator, &guard, "after the downgrade")).await;
        assert_eq!(timeout(Duration::from_millis(50), guard.lost()).await.ok(), None);
        guard.release().await.unwrap();
        assert_eq!(show(&mut operator, "page").await.holding, 0);
    }
    node.end().await;
}

/// The same, at any moment; if the cancel comes first, the guard is still a reader's.
#[tokio::test]
async fn upgrade_dropped_at_any_point_leaves_the_servers_mode() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let mut operator = operator(&node).await;
    for round in 0..100_u64 {
        let mut guard = soon(ana.lock("page").shared().acquire()).await.unwrap();
        let other = soon(bo.lock("page").shared().acquire()).await.unwrap();
        {
            let mut upgrade = pin!(guard.upgrade(None));
            assert!(poll_once(upgrade.as_mut()).await.is_pending());
            if round % 2 == 0 {
                sleep(Duration::from_micros(round * 37 % 3_000)).await;
            }
            tokio::spawn(other.release());
            sleep(Duration::from_micros(round * 53 % 4_000)).await;
        }
        match round % 3 {
            0 => drop(guard),
            1 => guard.release().await.unwrap(),
            _ => {
                let gone = async || show(&mut operator, "page").await.holding == 1;
                eventually("the other reader is gone", gone).await;
                soon(assert_agree(&mut operator, &guard, &format!("round {round}"))).await;
                drop(guard);
            }
        }
        let free = async || {
            let lock = show(&mut operator, "page").await;
            lock.holding + lock.waiting == 0
        };
        eventually("the lock is free", free).await;
    }
    node.end().await;
}

/// A dropped `downgrade()` left a guard that reported that it was exclusive while other readers
/// were served, and a re-entrant exclusive acquire was granted from it.
#[tokio::test]
async fn dropped_downgrade_leaves_a_shared_guard() {
    let node = Node::start().await;
    let proxy = Proxy::to(&node.url);
    let (ana, bo) = (Client::connect([&proxy.url]).await.unwrap(), node.client().await);
    let mut operator = operator(&node).await;
    let mut guard = soon(ana.lock("page").reentrant().acquire()).await.unwrap();
    proxy.set(Way::AnswersWait);
    assert!(poll_times(guard.downgrade(), 1, || Duration::ZERO).await.is_none());
    let shared = async || show(&mut operator, "page").await.holders[0].mode() == Shared;
    eventually("it is downgraded", shared).await;
    assert!(guard.is_shared());
    let reader = bo.lock("page").shared().try_acquire().await.unwrap().unwrap();
    let again = ana.lock("page").reentrant().try_acquire().await;
    assert!(matches!(again, Ok(None)), "{again:?}");
    let again = ana.lock("page").reentrant().wait(Duration::from_millis(100)).acquire();
    assert!(matches!(soon(again).await, Err(Error::NotAcquired(_))));
    proxy.set(Way::Open);
    drop(reader);
    soon(assert_agree(&mut operator, &guard, "after the downgrade")).await;
    assert!(guard.is_shared());
    node.end().await;
}

/// A reader that was forced out while its upgrade waited was notified, and then given the exclusive
/// lock: what it had read may have changed in between.
#[tokio::test]
async fn upgrade_of_a_forced_out_reader_fails() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let mut operator = operator(&node).await;
    let mut guard = soon(ana.lock("page").shared().acquire()).await.unwrap();
    let other = soon(bo.lock("page").shared().acquire()).await.unwrap();
    let token = Some(guard.token().get());
    let upgrade = async {
        let upgraded = soon(guard.upgrade(None)).await;
        assert_eq!(upgraded, Err(Error::Over(EndReason::Forced)));
    };
    let force = async {
        let mut operator = operator.clone();
        eventually("the upgrade waits", async || show(&mut operator, "page").await.waiting == 1)
            .await;
        let (by, reason) = ("operator".into(), "maintenance".into());
        let force = proto::ForceRequest { name: "page".into(), token, by, reason };
        operator.force(force).await.unwrap();
    };
    tokio::join!(upgrade, force);
    assert_eq!(guard.health(), Health::Lost(EndReason::Forced));
    other.release().await.unwrap();
    let gone = async || show(&mut operator, "page").await.waiting == 0;
    eventually("nobody waits", gone).await;
    bo.lock("page").try_acquire().await.unwrap().unwrap();
    node.end().await;
}

/// A dropped acquire with a lease of its own was held until that lease ran out, if the client was
/// dropped right after it: nobody was left to give the grant back.
#[tokio::test]
async fn acquire_dropped_with_its_client_leaves_nothing() {
    let node = Node::start().await;
    let proxy = Proxy::to(&node.url);
    let mut operator = operator(&node).await;
    for (round, close) in [(0, true), (1, false), (2, true), (3, false)] {
        let ana = Client::connect([&proxy.url]).await.unwrap();
        let name = format!("seat-{round}");
        proxy.set(Way::AnswersWait);
        let mut acquire = Box::pin(ana.lock(&name).ttl(OWN_TTL).acquire());
        assert!(poll_once(acquire.as_mut()).await.is_pending());
        if round < 2 {
            let held = async || show(&mut operator, &name).await.holding == 1;
            eventually("it is granted", held).await;
        }
        drop(acquire);
        let closed = close.then(|| tokio::spawn(ana.clone().close()));
        drop(ana);
        proxy.set(Way::Open);
        if let Some(closed) = closed {
            // After the close, nothing is held.
            soon(closed).await.unwrap();
            assert_eq!(show(&mut operator, &name).await.holding, 0);
        }
        let free = async || show(&mut operator, &name).await.holding == 0;
        eventually("it is given back", free).await;
    }
    node.end().await;
}

/// A wait with a lease of its own was served while no server could be reached, the session was
/// lost, and the lock was held by nobody until that lease ran out.
#[tokio::test]
async fn wait_granted_as_its_session_is_lost_is_released() {
    let node = Node::start().await;
    let proxy = Proxy::to(&node.url);
    let setup = Client::builder().session_ttl(Duration::from_secs(1));
    let (ana, bo) = (setup.connect([&proxy.url]).await.unwrap(), node.client().await);
    let mut operator = operator(&node).await;
    let held = bo.lock("seat").acquire().await.unwrap();
    let waits = tokio::spawn({
        let ana = ana.clone();
        async move { ana.lock("seat").ttl(OWN_TTL).acquire().await.map(drop) }
    });
    let in_line = async || show(&mut operator, "seat").await.waiting == 1;
    eventually("it waits", in_line).await;
    proxy.set(Way::Cut);
    held.release().await.unwrap();
    assert_eq!(show(&mut operator, "seat").await.holding, 1);
    assert_eq!(soon(waits).await.unwrap(), Err(Error::SessionLost));
    proxy.set(Way::Open);
    let free = async || show(&mut operator, "seat").await.holding == 0;
    eventually("it is given back", free).await;
    node.end().await;
}

/// A guard with a lease of its own was dropped while no server answered: its release was forgotten
/// after a while, and the lock was held until that lease ran out.
#[tokio::test]
async fn guard_dropped_while_disconnected_is_released_later() {
    let node = Node::start().await;
    let proxy = Proxy::to(&node.url);
    let brief = Duration::from_millis(500);
    let setup = Client::builder().session_ttl(brief * 2).timeout(brief);
    let ana = setup.connect([&proxy.url]).await.unwrap();
    let mut operator = operator(&node).await;
    let dropped = ana.lock("dropped").ttl(OWN_TTL).acquire().await.unwrap();
    let released = ana.lock("released").ttl(OWN_TTL).acquire().await.unwrap();
    proxy.set(Way::Cut);
    drop(dropped);
    let released = soon(released.release()).await;
    assert!(matches!(released, Err(Error::Unreachable(_))), "{released:?}");
    sleep(brief * 4).await;
    proxy.set(Way::Open);
    for name in ["dropped", "released"] {
        let free = async || show(&mut operator, name).await.holding == 0;
        eventually("it is released", free).await;
    }
    node.end().await;
}

/// Waits are not served after their client is closed: with a lease of their own they would be held
/// by nobody.
#[tokio::test]
async fn close_ends_the_waits_of_other_handles() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let mut operator = operator(&node).await;
    let held = bo.lock("seat").acquire().await.unwrap();
    let waits = tokio::spawn({
        let ana = ana.clone();
        async move { ana.lock("seat").ttl(OWN_TTL).acquire().await.map(drop) }
    });
    let in_line = async || show(&mut operator, "seat").await.waiting == 1;
    eventually("it waits", in_line).await;
    let released = tokio::spawn(held.release());
    soon(ana.clone().close()).await;
    released.await.unwrap().unwrap();
    let waited = soon(waits).await.unwrap();
    assert!(matches!(waited, Err(Error::Closed) | Ok(())), "{waited:?}");
    let free = async || show(&mut operator, "seat").await.holding == 0;
    eventually("nobody holds it", free).await;
    assert_eq!(ana.lock("seat").acquire().await.map(drop), Err(Error::Closed));
    node.end().await;
}

/// A guard reported that it was good until the server had confirmed the close of its session, and
/// the next holder was served before that.
#[tokio::test]
async fn guard_is_lost_before_its_client_closes() {
    let node = Node::start().await;
    let proxy = Proxy::to(&node.url);
    let (ana, bo) = (Client::connect([&proxy.url]).await.unwrap(), node.client().await);
    let guard = ana.lock("seat").acquire().await.unwrap();
    proxy.set(Way::AnswersWait);
    let closed = tokio::spawn(ana.close());
    let next = soon(bo.lock("seat").acquire()).await.unwrap();
    assert_eq!(guard.health(), Health::Lost(EndReason::Closed));
    proxy.set(Way::Open);
    soon(closed).await.unwrap();
    next.release().await.unwrap();
    node.end().await;
}

/// The wait counted only from when no other acquire of the same client was ahead: 2 seconds took
/// nearly 4.
#[tokio::test]
async fn reentrant_wait_counts_from_the_call() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let _held = bo.lock("seat").acquire().await.unwrap();
    let wait = Duration::from_secs(2);
    let ask = || ana.lock("seat").reentrant().wait(wait).acquire();
    let begun = Instant::now();
    let first = ana.lock("seat").reentrant().wait(wait * 9 / 10).acquire();
    let (first, second) = tokio::join!(first, ask());
    let took = begun.elapsed();
    assert!(matches!((&first, &second), (Err(Error::NotAcquired(_)), Err(Error::NotAcquired(_)))));
    assert!(took >= wait && took < wait * 3 / 2, "{took:?}");
    node.end().await;
}

/// A guard whose upgrade was dropped while it was served forgot that a holder had died before it:
/// `needs_recovery()` was false, and nobody recovered.
#[tokio::test]
async fn dropped_upgrade_keeps_the_death_record() {
    let node = Node::start().await;
    let dead = node.client().await;
    std::mem::forget(dead.lock("page").acquire().await.unwrap());
    dead.close().await;
    let (ana, bo) = (node.client().await, node.client().await);
    for round in 0..600_u64 {
        let mut guard = soon(ana.lock("page").shared().acquire()).await.unwrap();
        assert!(guard.needs_recovery());
        let other = soon(bo.lock("page").shared().acquire()).await.unwrap();
        {
            let mut upgrade = pin!(guard.upgrade(None));
            assert!(poll_once(upgrade.as_mut()).await.is_pending());
            sleep(Duration::from_micros(round * 37 % 2_000)).await;
            tokio::spawn(other.release());
            sleep(Duration::from_micros(round * 53 % 1_500)).await;
        }
        // Answered once the upgrade is settled.
        soon(guard.note(None)).await.unwrap();
        assert!(guard.needs_recovery(), "round {round}: shared: {}", guard.is_shared());
        assert_eq!(guard.deaths()[0].how, EndReason::Closed);
        guard.release().await.unwrap();
    }
    node.end().await;
}

/// A lock that was detached after its `upgrade()` had been dropped was released: nothing waited
/// until it was known which ticket was held, and the reader's token was handed over.
#[tokio::test]
async fn detached_lock_stays_held_after_a_dropped_upgrade() {
    let node = Node::start().await;
    let proxy = Proxy::to(&node.url);
    let ana = Client::connect([&proxy.url]).await.unwrap();
    let mut operator = operator(&node).await;
    let mut guard = soon(ana.lock("page").shared().ttl(OWN_TTL).acquire()).await.unwrap();
    let read_with = guard.token();
    proxy.set(Way::AnswersWait);
    {
        let mut upgrade = pin!(guard.upgrade(None));
        assert!(poll_once(upgrade.as_mut()).await.is_pending());
        let writes = async || show(&mut operator, "page").await.holders[0].mode() == Exclusive;
        eventually("it is upgraded", writes).await;
    }
    let mut detaches = pin!(guard.detach());
    assert!(poll_once(detaches.as_mut()).await.is_pending(), "nobody can know yet");
    proxy.set(Way::Open);
    let detached = soon(detaches).await.map_err(|(_, error)| error).unwrap();
    assert!(detached.token > read_with);
    // Everything that the client sends about it comes before this.
    ana.close().await;
    let holders = show(&mut operator, "page").await.holders;
    let tokens: Vec<u64> = holders.iter().map(|holder| holder.token).collect();
    assert_eq!(tokens, [detached.token.get()]);
    let own = proto::TicketRef {
        name: detached.name,
        token: detached.token.get(),
        secret: detached.secret,
    };
    operator.release(own).await.unwrap();
    node.end().await;
}
