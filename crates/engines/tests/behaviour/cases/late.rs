//! Requests that are delayed, and arrive when nobody expects them any more.

use crate::engine::{Engine, Exception, unique};
use crate::proxy::{Mode, Proxy};
use holdfast_locks::{Error, LeaseRef};
use std::time::Duration;
use tokio::time::{sleep, timeout};

use super::through_proxies;

/// The timeout of a call to the engine.
const TIMEOUT: Duration = Duration::from_secs(4);

/// Far longer than a test: a lock that is left behind is found.
const LONG: Duration = Duration::from_secs(600);

/// The first packet of an acquire was delayed, the acquire continued over another connection or
/// gave up, and the lock was released. When the packet arrived it took the lock for nobody: on
/// Redis and Cassandra for its whole TTL.
pub(crate) async fn late_take(engine: &Engine) {
    if engine.hosts.is_empty() {
        // Nothing is ever in flight.
        return assert!(engine.has(Exception::OneProcess));
    }
    let (proxies, locks) = through_proxies(engine, TIMEOUT).await;
    let (direct, name) = (engine.connect().await, unique("late"));
    // Whatever a first acquire needs besides the lock exists by now: a session, for instance.
    engine.take(&locks, &name).await.unwrap().release().await.unwrap();
    proxies.iter().for_each(Proxy::delay);
    let lock = locks.lock(&name).ttl(LONG.min(engine.ttl * 20)).wait(Duration::from_secs(15));
    if let Ok(guard) = lock.acquire().await {
        let released = guard.release().await;
        assert!(matches!(released, Ok(()) | Err(Error::Unsure { .. })), "{released:?}");
    }
    proxies.iter().for_each(Proxy::deliver);
    sleep(Duration::from_millis(500)).await;
    let next = direct.lock(&name).wait(Duration::from_secs(35)).acquire().await;
    next.expect("nobody has the lock").release().await.unwrap();
}

/// A renewal that was in flight when a lease was detached arrived after the next process had
/// extended the lease, and shortened it.
pub(crate) async fn late_renewal(engine: &Engine) {
    let ttl = engine.ttl.max(Duration::from_secs(15));
    let (proxies, locks) = through_proxies(engine, TIMEOUT).await;
    let (direct, name) = (engine.connect().await, unique("renewal"));
    if engine.hosts.is_empty() || !locks.promises().detachable.holds {
        return;
    }
    let mut guard = locks.lock(&name).ttl(ttl).acquire().await.unwrap();
    proxies.iter().for_each(Proxy::delay);
    // By now a renewal is in flight.
    sleep(ttl / 3 + Duration::from_millis(500)).await;
    let lease: LeaseRef = loop {
        match guard.detach().await {
            Ok(lease) => break lease,
            // Everything goes over the delayed connection.
            Err((back, Error::Unreachable(_))) => {
                proxies.iter().for_each(Proxy::deliver);
                guard = back;
            }
            Err((_, error)) => panic!("{error}"),
        }
        sleep(Duration::from_millis(100)).await;
    };
    let attached = direct.attach(lease).await.unwrap();
    attached.extend(LONG).await.unwrap();
    proxies.iter().for_each(Proxy::deliver);
    sleep(Duration::from_secs(2)).await;
    let left = attached.check().await.unwrap();
    assert!(left > LONG / 2, "a late renewal left {left:?}");
    attached.release().await.unwrap();
}

/// The reply to an extension that was shorter than the lease was lost. The guard kept counting on
/// the longer one, and the next holder was served while it did.
pub(crate) async fn shorter_extension(engine: &Engine) {
    let (proxies, locks) = through_proxies(engine, TIMEOUT).await;
    let name = unique("shorter");
    if engine.hosts.is_empty() {
        return assert!(engine.has(Exception::OneProcess));
    }
    // Long compared to the time that an unanswered call takes.
    let long = Duration::from_secs(12);
    let guard = locks.lock(&name).ttl(long).fixed().acquire().await.unwrap();
    let short = long / 4;
    proxies.iter().for_each(|proxy| proxy.set(Mode::LoseAnswers));
    let extended = timeout(TIMEOUT * 3, guard.extend(short)).await;
    assert!(!matches!(extended, Ok(Ok(()))), "{extended:?}");
    assert!(guard.remaining() <= short, "it counts on {:?}", guard.remaining());
    guard.lost().await;
    proxies.iter().for_each(Proxy::cut);
    proxies.iter().for_each(|proxy| proxy.set(Mode::Open));
}
