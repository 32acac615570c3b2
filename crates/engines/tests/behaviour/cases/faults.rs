//! A network that loses replies, an engine that dies.

use crate::cases::hold_in_child;
use crate::engine::{Engine, Exception, unique};
use crate::proxy::{Mode, Proxy};
use holdfast_locks::{Error, Locks};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// The engine, with a proxy in front of each of its servers.
pub(crate) async fn through_proxies(engine: &Engine, timeout: Duration) -> (Vec<Proxy>, Locks) {
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

/// Requests take effect and their replies are lost: whatever the caller is told, nothing stays held
/// for longer than a lease, and the lock never has two holders.
pub(crate) async fn lost_answers(engine: &Engine) {
    if engine.hosts.is_empty() {
        // No reply can be lost.
        return assert!(engine.has(Exception::OneProcess));
    }
    let (proxies, locks) = through_proxies(engine, Duration::from_secs(3)).await;
    let (direct, name) = (engine.connect().await, unique("answers"));
    for _ in 0..3 {
        // The reply to the acquire is lost.
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
            // The reply to the release is lost.
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

/// The engine is killed and restarted while a lock is held. Afterwards locks can be taken again. If
/// the engine promises to survive, the holder has not lost its lock; if not, another one gets it.
pub(crate) async fn restart(engine: &Engine) {
    let (locks, name) = (engine.connect().await, unique("restart"));
    let Some(server) = engine.server.clone() else {
        return not_in_other_processes(engine, &locks, &name).await;
    };
    let ttl = engine.ttl.max(Duration::from_secs(20));
    let guard = locks.lock(&name).ttl(ttl).acquire().await.unwrap();
    let restarted = tokio::task::spawn_blocking(move || {
        server.kill();
        server.restart();
    });
    restarted.await.unwrap();
    if locks.promises().survives_failover.holds || engine.has(Exception::SurvivesFailover) {
        let stolen = locks.lock(&name).try_acquire().await;
        let robbed = !guard.is_lost() && matches!(stolen, Ok(Some(_)));
        assert!(!robbed, "the lock was lost in a restart");
    } else {
        let stolen = once_reachable(|| locks.lock(&name).try_acquire()).await;
        let next = stolen.expect("the lock survived, which is not promised");
        // Until now there may have been two. At its next renewal the old holder notices.
        let lost = tokio::time::timeout(ttl * 2, guard.lost()).await;
        assert!(lost.is_ok(), "the old holder never hears that its lock is gone");
        assert!(!next.is_lost());
        next.release().await.unwrap();
    }
    let released = guard.release().await;
    assert!(
        matches!(released, Ok(()) | Err(Error::NotHeld(_) | Error::Unsure { .. })),
        "{released:?}"
    );
    engine.take(&locks, &unique("afterwards")).await.unwrap().release().await.unwrap();
}

/// Locks inside one process end with it: another process never had them.
async fn not_in_other_processes(engine: &Engine, locks: &Locks, name: &str) {
    assert!(engine.has(Exception::OneProcess));
    let child = hold_in_child(engine, name, Duration::from_secs(600));
    assert_eq!(locks.inspect(name).await.unwrap(), None);
    let guard = locks.lock(name).try_acquire().await.unwrap().expect("it is another lock");
    drop(child);
    guard.release().await.unwrap();
}

/// Retries a call to an engine that was restarted a moment ago.
async fn once_reachable<T, F: Future<Output = Result<T, Error>>>(call: impl Fn() -> F) -> T {
    for _ in 0..100 {
        match call().await {
            Ok(done) => return done,
            Err(Error::Unreachable(_) | Error::Unsure { .. }) => {
                sleep(Duration::from_millis(200)).await
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the engine can't be reached");
}

/// For engines that can't notify the holder in time: the server ends its connection while the
/// network is down, and serves the next one. The holder still believes that it holds the lock.
async fn served_too_early(engine: &Engine, end_connection: fn(&str)) {
    let ttl = Duration::from_secs(30);
    let (proxies, locks) = through_proxies(engine, Duration::from_secs(3)).await;
    let (direct, name) = (engine.connect().await, unique("early"));
    let guard = locks.lock(&name).label(&name).ttl(ttl).acquire().await.unwrap();
    proxies.iter().for_each(|proxy| proxy.set(Mode::Silent));
    assert!(direct.lock(&name).try_acquire().await.unwrap().is_none());
    let label = name.clone();
    tokio::task::spawn_blocking(move || end_connection(&label)).await.unwrap();
    let next = direct.lock(&name).wait(Duration::from_secs(10)).acquire().await.unwrap();
    assert!(!guard.is_lost(), "it heard of its loss in time, which is not promised");
    guard.lost().await;
    next.release().await.unwrap();
}

/// A holder that is cut off learns that its lock is lost before the engine serves the next one.
pub(crate) async fn lost_before_next(engine: &Engine) {
    let promised = engine.connect().await.promises().lost_in_time.holds;
    assert_eq!(promised, engine.end_connection.is_none());
    if let Some(end_connection) = engine.end_connection {
        return served_too_early(engine, end_connection).await;
    }
    let (proxies, locks) = through_proxies(engine, Duration::from_secs(3)).await;
    let (direct, name) = (engine.connect().await, unique("before"));
    let lock = locks.lock(&name).ttl(engine.ttl);
    // Inside one process nobody can be cut off, so the lease is not renewed.
    let lock = if engine.is_shared() { lock } else { lock.fixed() };
    let guard = lock.acquire().await.unwrap();
    let next = {
        let lock = direct.lock(&name).ttl(engine.ttl).wait(engine.over() + Duration::from_secs(30));
        tokio::spawn(async move { (lock.acquire().await, Instant::now()) })
    };
    sleep(engine.ttl / 2).await;
    proxies.iter().for_each(|proxy| proxy.set(Mode::Silent));
    let lost = tokio::time::timeout(engine.over() + Duration::from_secs(30), guard.lost()).await;
    let lost_at = Instant::now();
    assert!(lost.is_ok(), "a holder that is cut off is never told");
    let (next, served_at) = next.await.unwrap();
    assert!(lost_at <= served_at, "served {:?} before the loss", lost_at - served_at);
    next.unwrap().release().await.unwrap();
}

/// For engines that can settle it: an acquire whose reply is lost ends with the lock held, and a
/// release whose reply is lost with the lock free, although the lease is far longer than the test.
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
