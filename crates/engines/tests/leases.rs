//! Leases and connections, as far as no engine is needed.

use holdfast_locks::{Error, Locks};
use std::time::Duration;

/// An extension by the longest possible duration made the library panic.
#[tokio::test]
async fn extensions_have_the_limits_of_a_ttl() {
    let locks = Locks::connect("memory://limits").await.unwrap();
    let guard = locks.lock("seat").fixed().acquire().await.unwrap();
    for ttl in [Duration::MAX, Duration::ZERO] {
        let refused = guard.extend(ttl).await;
        assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
    }
    assert!(!guard.is_lost());
    let lease = guard.detach().await.map_err(|(_, error)| error).unwrap();
    let lease = locks.attach(lease).await.unwrap();
    let refused = lease.extend(Duration::MAX).await;
    assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
    lease.release().await.unwrap();
}

/// Each `connect` left a task in the program's runtime, for as long as the runtime existed.
#[tokio::test]
async fn dropped_connection_leaves_no_task() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for _ in 0..10 {
        let locks = Locks::connect("memory://tasks").await.unwrap();
        drop(locks.lock("seat").acquire().await.unwrap());
        locks.close().await;
    }
    for _ in 0..1_000 {
        if tasks() == before {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{} tasks instead of {before}", tasks());
}

/// The blocking API can hand a lease over too.
#[test]
fn blocking_guards_can_be_detached() {
    let locks = holdfast_locks::blocking::Locks::connect("memory://blocking").unwrap();
    let guard = locks.lock("seat").acquire().unwrap();
    let lease = guard.detach().map_err(|(_, error)| error).unwrap();
    locks.attach(lease).unwrap().release().unwrap();
}
