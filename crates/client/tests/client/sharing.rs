//! Shared locks, locks with several names, re-entrant locks.

use crate::cancel::{poll_times, show};
use crate::server::Node;
use crate::{eventually, operator, soon};
use holdfast_client::{Client, Error, ErrorCode, Health};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn code(error: Result<impl Sized, Error>) -> ErrorCode {
    match error.map(|_| ()) {
        Err(Error::Refused { code, .. }) => code,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn semaphore_limits_its_permits() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let one = ana.semaphore("pool", 2).acquire().await.unwrap();
    let _two = bo.semaphore("pool", 2).try_acquire().await.unwrap().unwrap();
    let third = ana.semaphore("pool", 2).try_acquire().await;
    assert!(matches!(third, Ok(None)), "{third:?}");
    assert_eq!(code(ana.semaphore("pool", 3).try_acquire().await), ErrorCode::OtherKind);
    assert_eq!(code(ana.semaphore("pool", 0).acquire().await), ErrorCode::BadRequest);
    one.release().await.unwrap();
    let third = ana.semaphore("pool", 2).try_acquire().await.unwrap().unwrap();
    let fenced = ana.register("pool").put("x", &third).await;
    assert_eq!(code(fenced), ErrorCode::BadRequest, "permits can't be fenced");
    node.end().await;
}

#[tokio::test]
async fn several_names_are_acquired_atomically() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let right = ana.lock("right").acquire().await.unwrap();
    let waits = tokio::spawn({
        let bo = bo.clone();
        async move { bo.locks(["right", "left"]).acquire().await.unwrap() }
    });
    // Bo is in both lines: left is free and yet can't be acquired.
    eventually("bo stands in line", async || {
        ana.lock("left").try_acquire().await.unwrap().is_none()
    })
    .await;
    right.release().await.unwrap();
    let both = soon(waits).await.unwrap();
    assert_eq!(both.names(), ["left", "right"]);
    assert_eq!(code(bo.locks(["left", "middle"]).acquire().await), ErrorCode::AlreadyHeld);
    both.release().await.unwrap();
    ana.locks(["left", "right"]).try_acquire().await.unwrap().unwrap();
    node.end().await;
}

#[tokio::test]
async fn guards_can_be_upgraded_and_downgraded() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let mut first = ana.lock("page").shared().acquire().await.unwrap();
    let mut second = bo.lock("page").shared().acquire().await.unwrap();
    assert!(first.is_shared());

    let brief = first.upgrade(Some(Duration::from_millis(50))).await;
    assert!(matches!(brief, Err(Error::NotAcquired(_))), "{brief:?}");
    assert!(first.is_shared(), "one that was not upgraded is what it was");
    assert_eq!(first.health(), Health::Good);

    let read_with = first.token();
    let upgrading = tokio::spawn(async move {
        first.upgrade(None).await.unwrap();
        first
    });
    eventually("the upgrade waits", async || {
        bo.lock("page").shared().try_acquire().await.unwrap().is_none()
    })
    .await;
    // The second upgrade is refused: the two would wait for each other.
    assert_eq!(code(second.upgrade(None).await), ErrorCode::UpgradeBlocked);
    second.release().await.unwrap();
    let mut first = soon(upgrading).await.unwrap();
    assert!(!first.is_shared() && first.token() > read_with);
    assert_eq!(first.health(), Health::Good);
    assert!(bo.lock("page").shared().try_acquire().await.unwrap().is_none());

    let token = first.token();
    first.downgrade().await.unwrap();
    assert!(first.is_shared() && first.token() == token);
    let beside = bo.lock("page").shared().try_acquire().await.unwrap().unwrap();
    beside.release().await.unwrap();
    first.release().await.unwrap();
    ana.lock("page").try_acquire().await.unwrap().unwrap();
    node.end().await;
}

#[tokio::test]
async fn reentrant_lock_is_released_with_the_last_guard() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let outer = ana.lock("seat").reentrant().acquire().await.unwrap();
    let inner = ana.lock("seat").reentrant().try_acquire().await.unwrap().unwrap();
    let innermost = ana.clone().lock("seat").reentrant().acquire().await.unwrap();
    assert_eq!((inner.token(), innermost.token()), (outer.token(), outer.token()));
    let busy = async || bo.lock("seat").try_acquire().await.unwrap().is_none();
    assert!(busy().await, "another client does not get in");
    assert!(ana.lock("seat").try_acquire().await.unwrap().is_none(), "it must be asked for");

    outer.release().await.unwrap();
    assert!(busy().await);
    drop(inner);
    assert!(busy().await);
    assert_eq!(innermost.health(), Health::Good);
    innermost.release().await.unwrap();
    let guard = bo.lock("seat").try_acquire().await.unwrap().unwrap();
    guard.release().await.unwrap();

    let again = ana.lock("seat").reentrant().acquire().await.unwrap();
    assert_eq!(again.health(), Health::Good);
    node.end().await;
}

#[tokio::test]
async fn concurrent_tasks_share_a_reentrant_lock() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let held = bo.lock("seat").acquire().await.unwrap();
    let ask = || {
        let ana = ana.clone();
        tokio::spawn(async move { ana.lock("seat").reentrant().acquire().await.unwrap() })
    };
    let (one, two) = (ask(), ask());
    tokio::task::yield_now().await;
    held.release().await.unwrap();
    let (one, two) = (soon(one).await.unwrap(), soon(two).await.unwrap());
    assert_eq!(one.token(), two.token());
    node.end().await;
}

#[tokio::test]
async fn mode_of_a_shared_reentrant_lock_cannot_change() {
    let node = Node::start().await;
    let ana = node.client().await;
    let mut outer = ana.lock("page").reentrant().acquire().await.unwrap();
    let inner = ana.lock("page").reentrant().acquire().await.unwrap();
    assert_eq!(code(outer.downgrade().await), ErrorCode::Reentered);
    inner.release().await.unwrap();
    outer.downgrade().await.unwrap();
    // It is held in another mode: this would wait behind itself.
    let other_mode = ana.lock("page").reentrant().try_acquire().await;
    assert!(matches!(other_mode, Ok(None)), "{other_mode:?}");
    node.end().await;
}

/// A re-entrant try was refused for microseconds at a time although its client held the lock: while
/// another task was inspecting it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reentrant_try_succeeds_while_the_client_holds_the_lock() {
    let node = Node::start().await;
    let ana = node.client().await;
    let outer = ana.lock("seat").reentrant().acquire().await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..4 {
        let ana = ana.clone();
        tasks.spawn(async move {
            for round in 0..5_000 {
                let lock = ana.lock("seat").reentrant();
                let again = match task {
                    0 => lock.acquire().await.map(Some),
                    _ => lock.try_acquire().await,
                };
                assert!(matches!(again, Ok(Some(_))), "task {task}, round {round}: {again:?}");
            }
        });
    }
    for _ in 0..200 {
        soon(outer.note(None)).await.unwrap();
    }
    while let Some(done) = soon(tasks.join_next()).await {
        done.unwrap();
    }
    node.end().await;
}

/// A release returned Ok before the lock was released if another task was just checking whether it
/// could acquire it again: the check counted as a guard.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn release_succeeds_while_others_inspect_the_lock() {
    let node = Node::start().await;
    let ana = node.client().await;
    let mut operator = operator(&node).await;
    let round = Arc::new(AtomicU64::new(0));
    let looks = tokio::spawn({
        let (ana, round) = (ana.clone(), round.clone());
        async move {
            loop {
                // It is held in another mode, so this only inspects it.
                let name = format!("page-{}", round.load(Ordering::Relaxed));
                let again = ana.lock(name).reentrant().try_acquire();
                poll_times(again, 1, || Duration::ZERO).await;
            }
        }
    });
    for number in 1..=400 {
        let name = format!("page-{number}");
        let mut guard = soon(ana.lock(&name).reentrant().acquire()).await.unwrap();
        guard.downgrade().await.unwrap();
        round.store(number, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_micros(500)).await;
        let token = guard.token().get();
        soon(guard.release()).await.unwrap();
        let holders = show(&mut operator, &name).await.holders;
        assert!(holders.iter().all(|holder| holder.token != token), "round {number}");
    }
    looks.abort();
    node.end().await;
}

/// A client with a limit of one ticket could not upgrade it: the writer's was counted in addition
/// to the reader's, which it replaces.
#[tokio::test]
async fn upgrade_needs_no_extra_ticket() {
    let node = Node::start().await;
    let ana = Client::builder().tickets_max(1).connect(&node.url).await.unwrap();
    for _ in 0..3 {
        let mut guard = ana.lock("page").shared().acquire().await.unwrap();
        guard.upgrade(None).await.unwrap();
        let another = ana.lock("other").acquire().await;
        assert!(matches!(another, Err(Error::TooMany(_))), "{another:?}");
        guard.release().await.unwrap();
    }
    node.end().await;
}
