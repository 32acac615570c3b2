//! How a lease ends.

use crate::child::Helper;
use crate::engine::{Engine, unique};
use holdfast_locks::Error;
use rustix::process::Signal;
use std::time::Duration;
use tokio::time::sleep;

/// A lease is renewed for as long as its guard exists, far beyond its TTL.
pub(crate) async fn renewal(engine: &Engine) {
    let (locks, name) = (engine.connect().await, unique("renewal"));
    let others = engine.connect().await;
    let guard = locks.lock(&name).ttl(engine.ttl).acquire().await.unwrap();
    let refused = others.lock(&name).wait(engine.ttl * 3).acquire().await;
    assert!(matches!(refused, Err(Error::TimedOut { .. })), "{refused:?}");
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
}

/// A lease that is not renewed ends: the holder knows, the next one gets the lock, and the old
/// guard's release is refused.
pub(crate) async fn fixed_lease(engine: &Engine) {
    let (locks, name) = (engine.connect().await, unique("fixed"));
    let guard = locks.lock(&name).ttl(engine.ttl).fixed().acquire().await.unwrap();
    guard.extend(engine.ttl).await.unwrap();
    let next = engine.take(&locks, &name).await.unwrap();
    assert!(guard.is_lost(), "the next holder is served while the first believes");
    guard.lost().await;
    let released = guard.release().await;
    assert!(matches!(released, Err(Error::NotHeld(_))), "{released:?}");
    assert!(!next.is_lost());
    next.release().await.unwrap();
}

pub(crate) fn hold_in_child(engine: &Engine, name: &str, ttl: Duration) -> Helper {
    let ttl_ms = ttl.as_millis().to_string();
    let settings = [("URL", engine.url()), ("NAME", name.to_owned()), ("TTL_MS", ttl_ms)];
    let settings = settings.each_ref().map(|(key, value)| (*key, value.as_str()));
    let mut child = Helper::start("hold", &settings);
    let held = child.receive();
    assert!(held.starts_with("held "), "{held}");
    child
}

/// A holder that is killed loses its lock within the TTL, and the next one learns that it died,
/// where the engine can tell. Inside one process a holder dies by never renewing.
pub(crate) async fn killed_holder(engine: &Engine) {
    let (locks, name) = (engine.connect().await, unique("killed"));
    let guard = if engine.is_shared() {
        let mut child = hold_in_child(engine, &name, engine.ttl);
        assert!(locks.lock(&name).try_acquire().await.unwrap().is_none());
        child.kill();
        engine.take(&locks, &name).await.unwrap()
    } else {
        let lock = locks.lock(&name).ttl(engine.ttl).label("child").note("half done");
        let dead = lock.fixed().acquire().await.unwrap();
        let guard = engine.take(&locks, &name).await.unwrap();
        assert!(dead.is_lost());
        guard
    };
    let ending = guard.ending().cloned();
    if locks.promises().reports_death.holds {
        let ending = ending.expect("the death is known");
        assert!(ending.died);
        assert_eq!(ending.label.as_deref(), Some("child"));
        assert_eq!(ending.note.as_deref(), Some("half done"));
    } else {
        assert_eq!(ending, None);
    }
    guard.release().await.unwrap();
    // A holder that released is not taken for one that died.
    let guard = engine.take(&locks, &name).await.unwrap();
    assert!(guard.ending().is_none_or(|ending| !ending.died));
    guard.release().await.unwrap();
}

/// A holder that was stopped past its lease notices at its first check that the lock is lost.
pub(crate) async fn stopped_holder(engine: &Engine) {
    let (locks, name) = (engine.connect().await, unique("stopped"));
    let mut child = hold_in_child(engine, &name, engine.ttl);
    child.signal(Signal::STOP);
    if !engine.is_shared() {
        // The locks are stopped together with their holder.
        sleep(engine.over()).await;
        child.signal(Signal::CONT);
        for (order, expected) in [("look", "lost"), ("take", "taken"), ("look", "lost")] {
            child.send(order);
            assert_eq!(child.receive(), expected);
        }
        child.send("release");
        assert!(child.receive().contains("NotHeld"));
        return child.finish();
    }
    if engine.end_connection.is_some() {
        // The lock is tied to a connection, which a stopped process keeps open: no TTL ends it.
        // Once the holder is continued, it releases the lock or has already closed the connection.
        let wait = engine.over() + Duration::from_secs(2);
        let refused = locks.lock(&name).wait(wait).acquire().await;
        assert!(matches!(refused, Err(Error::TimedOut { .. })), "{refused:?}");
        child.signal(Signal::CONT);
        child.send("release");
        let released = child.receive();
        assert!(released == "Ok(())" || released.contains("NotHeld"), "{released}");
        return child.finish();
    }
    let guard = engine.take(&locks, &name).await.unwrap();
    child.signal(Signal::CONT);
    child.send("look");
    assert_eq!(child.receive(), "lost");
    child.send("release");
    let released = child.receive();
    assert!(released.contains("NotHeld"), "{released}");
    sleep(engine.ttl).await;
    assert!(!guard.is_lost(), "a late release of the old holder ended the new one's lease");
    guard.release().await.unwrap();
    child.finish();
}
