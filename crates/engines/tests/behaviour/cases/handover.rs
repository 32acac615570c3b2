//! Leases that are taken in one process and released in another.

use crate::child::Helper;
use crate::engine::{Engine, unique};
use holdfast_locks::{Error, Guard, LeaseRef, Locks};
use std::time::Duration;

/// A detached lease is checked, extended and released by another process.
pub(crate) async fn handover(engine: &Engine) {
    let (locks, name) = (engine.connect().await, unique("handover"));
    let guard = locks.lock(&name).ttl(engine.ttl * 2).acquire().await.unwrap();
    let token = guard.token();
    let lease = match guard.detach().await {
        Ok(lease) => lease,
        Err((guard, error)) => {
            assert!(!locks.promises().detachable.holds, "{error}");
            assert!(matches!(error, Error::Unsupported(_)), "{error:?}");
            return guard.release().await.unwrap();
        }
    };
    assert!(locks.promises().detachable.holds);
    assert_eq!((lease.name(), lease.token()), (name.as_str(), token));
    let text = serde_json::to_string(&lease).unwrap();
    if engine.is_shared() {
        let url = engine.url();
        let mut child = Helper::start("finish", &[("URL", &url)]);
        child.send(&text);
        assert_eq!(child.receive(), "checked true");
        assert_eq!(child.receive(), "extended Ok(())");
        assert!(locks.lock(&name).try_acquire().await.unwrap().is_none());
        child.send("go on");
        assert_eq!(child.receive(), "released Ok(())");
        child.finish();
    } else {
        let attached = locks.attach(serde_json::from_str(&text).unwrap()).await.unwrap();
        attached.check().await.unwrap();
        attached.extend(Duration::from_secs(60)).await.unwrap();
        attached.release().await.unwrap();
    }
    let guard = locks.lock(&name).try_acquire().await.unwrap().expect("it was released");
    let gone = locks.attach(lease).await.unwrap();
    let checked = gone.check().await;
    assert!(matches!(checked, Err(Error::NotHeld(_))), "{checked:?}");
    let released = gone.release().await;
    assert!(matches!(released, Err(Error::NotHeld(_))), "{released:?}");
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
}

/// Nobody can release or extend another holder's lease, not even with the proof of an earlier lease
/// of the same lock.
pub(crate) async fn wrong_releaser(engine: &Engine) {
    let (locks, name) = (engine.connect().await, unique("wrong"));
    let old = locks.lock(&name).acquire().await.unwrap();
    let old = match old.detach().await {
        Ok(old) => old,
        Err((guard, _)) => return no_proof(&locks, guard).await,
    };
    locks.attach(old.clone()).await.unwrap().release().await.unwrap();
    let guard = locks.lock(&name).ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let mut forged: serde_json::Value = serde_json::to_value(&old).unwrap();
    forged["token"] = serde_json::to_value(guard.token()).unwrap();
    let forged: LeaseRef = serde_json::from_value(forged).unwrap();
    for lease in [old, forged] {
        let lease = locks.attach(lease).await.unwrap();
        let extended = lease.extend(Duration::from_secs(1)).await;
        assert!(matches!(extended, Err(Error::NotHeld(_))), "{extended:?}");
        let released = lease.release().await;
        assert!(matches!(released, Err(Error::NotHeld(_))), "{released:?}");
    }
    assert!(locks.lock(&name).try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
}

/// Where a lease can't be detached, there is no proof with which another process could release it.
async fn no_proof(locks: &Locks, guard: Guard) {
    assert!(!locks.promises().detachable.holds);
    let forged = serde_json::json!({
        "name": guard.name(),
        "token": guard.token(),
        "proof": "1",
        "deadline_unix_ms": u64::MAX / 2,
        "over_by_unix_ms": u64::MAX / 2,
    });
    let attached = locks.attach(serde_json::from_value(forged).unwrap()).await;
    assert!(matches!(attached, Err(Error::Unsupported(_))), "{attached:?}");
    assert!(locks.lock(guard.name()).try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
}
