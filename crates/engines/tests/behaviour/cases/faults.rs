//! A network that loses answers, an engine that dies.

use crate::engine::{Engine, unique};
use crate::proxy::{Mode, Proxy};
use holdfast_locks::{Error, Locks};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// The engine behind a proxy for each of its servers.
async fn through_proxies(engine: &Engine, timeout: Duration) -> (Vec<Proxy>, Locks) {
    let mut proxies = Vec::new();
    for host in &engine.hosts {
        proxies.push(Proxy::start(host.clone()).await);
    }
    let hosts: Vec<_> = proxies.iter().map(|proxy| proxy.address.clone()).collect();
    let url = engine.url.replace("{hosts}", &hosts.join(","));
    let builder = Locks::builder().timeout(timeout);
    let locks = builder.connect(&url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    (proxies, locks)
}

/// Requests take effect and their answers are lost: whatever the caller is told, nothing stays held
/// for longer than a lease, and nobody holds the lock beside another.
pub(crate) async fn lost_answers(engine: &Engine) {
    if engine.hosts.is_empty() {
        return;
    }
    let (proxies, locks) = through_proxies(engine, Duration::from_secs(3)).await;
    let (direct, name) = (engine.connect().await, unique("answers"));
    for _ in 0..3 {
        // The answer to the acquire is lost.
        let acquiring = {
            let lock = locks.lock(&name).ttl(engine.ttl).wait(engine.over());
            tokio::spawn(async move { lock.acquire().await })
        };
        proxies.iter().for_each(|proxy| proxy.set(Mode::LoseAnswers));
        sleep(Duration::from_millis(50)).await;
        proxies.iter().for_each(Proxy::cut);
        proxies.iter().for_each(|proxy| proxy.set(Mode::Open));
        let guard = acquiring.await.unwrap();
        if let Ok(guard) = guard {
            assert!(guard.is_lost() || direct.lock(&name).try_acquire().await.unwrap().is_none());
            // The answer to the release is lost.
            let releasing = tokio::spawn(guard.release());
            proxies.iter().for_each(|proxy| proxy.set(Mode::LoseAnswers));
            sleep(Duration::from_millis(50)).await;
            proxies.iter().for_each(Proxy::cut);
            proxies.iter().for_each(|proxy| proxy.set(Mode::Open));
            let released = releasing.await.unwrap();
            assert!(
                matches!(released, Ok(()) | Err(Error::NotHeld(_) | Error::Unsure { .. })),
                "{released:?}"
            );
        }
        // In any case the lock is free after one lease, for everybody.
        engine.take(&direct, &name).await.unwrap().release().await.unwrap();
    }
}

/// The engine is killed and restarted under a held lock. Afterwards locks can be taken again, and
/// where the engine promises to survive, the holder was not robbed.
pub(crate) async fn restart(engine: &Engine) {
    let Some(server) = engine.server.clone() else { return };
    let (locks, name) = (engine.connect().await, unique("restart"));
    let ttl = engine.ttl.max(Duration::from_secs(20));
    let guard = locks.lock(&name).ttl(ttl).acquire().await.unwrap();
    let restarted = tokio::task::spawn_blocking(move || {
        server.kill();
        server.restart();
    });
    restarted.await.unwrap();
    let stolen = locks.lock(&name).try_acquire().await;
    if locks.promises().survives_failover.holds {
        assert!(
            guard.is_lost() || !matches!(stolen, Ok(Some(_))),
            "the lock was lost in a restart"
        );
    }
    drop(stolen);
    let released = guard.release().await;
    assert!(
        matches!(released, Ok(()) | Err(Error::NotHeld(_) | Error::Unsure { .. })),
        "{released:?}"
    );
    engine.take(&locks, &unique("afterwards")).await.unwrap().release().await.unwrap();
}

/// A holder that is cut off hears that its lock is lost before the engine serves the next one.
pub(crate) async fn lost_before_next(engine: &Engine) {
    if engine.hosts.is_empty() {
        return;
    }
    let (proxies, locks) = through_proxies(engine, Duration::from_secs(3)).await;
    let (direct, name) = (engine.connect().await, unique("before"));
    let guard = locks.lock(&name).ttl(engine.ttl).acquire().await.unwrap();
    let next = {
        let lock = direct.lock(&name).ttl(engine.ttl).wait(engine.over() + Duration::from_secs(30));
        tokio::spawn(async move { (lock.acquire().await, Instant::now()) })
    };
    sleep(engine.ttl / 2).await;
    proxies.iter().for_each(|proxy| proxy.set(Mode::Silent));
    let lost = tokio::time::timeout(engine.over() + Duration::from_secs(30), guard.lost()).await;
    let lost_at = Instant::now();
    assert!(lost.is_ok(), "a holder that is cut off is never told");
    if !direct.promises().lost_in_time.holds {
        return;
    }
    let (next, served_at) = next.await.unwrap();
    assert!(lost_at <= served_at, "served {:?} before the loss", lost_at - served_at);
    next.unwrap().release().await.unwrap();
}

/// For engines that can settle it: an acquire whose answer is lost ends with the lock held, and a
/// release whose answer is lost with the lock free, although the lease is far longer than the test.
#[cfg(any(feature = "cassandra", feature = "postgres"))]
pub(crate) async fn settled_answers(engine: &Engine) {
    const LIMIT: Duration = Duration::from_secs(60);
    let (proxies, locks) = through_proxies(engine, Duration::from_secs(10)).await;
    let (direct, name) = (engine.connect().await, unique("settled"));
    let lose_answers = async || {
        sleep(Duration::from_millis(500)).await;
        proxies.iter().for_each(Proxy::cut);
        proxies.iter().for_each(|proxy| proxy.set(Mode::Open));
    };
    proxies.iter().for_each(|proxy| proxy.set(Mode::LoseAnswers));
    let acquiring = tokio::spawn(locks.lock(&name).ttl(Duration::from_secs(3600)).acquire());
    lose_answers().await;
    let acquired = tokio::time::timeout(LIMIT, acquiring).await.expect("it is settled");
    let guard = acquired.unwrap().unwrap();
    assert!(!guard.is_lost());
    assert!(direct.lock(&name).try_acquire().await.unwrap().is_none());

    proxies.iter().for_each(|proxy| proxy.set(Mode::LoseAnswers));
    let releasing = tokio::spawn(guard.release());
    lose_answers().await;
    let released = releasing.await.unwrap();
    assert!(matches!(released, Ok(()) | Err(Error::Unsure { .. })), "{released:?}");
    let next = tokio::time::timeout(LIMIT, direct.lock(&name).acquire()).await;
    next.expect("the release is settled").unwrap().release().await.unwrap();
}
