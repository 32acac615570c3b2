//! Locks that are held by several, locks of several names, locks that are taken twice.

use crate::server::Node;
use crate::{eventually, soon};
use holdfast_client::{Error, Health};
use std::time::Duration;

fn code(error: Result<impl Sized, Error>) -> String {
    match error.map(|_| ()) {
        Err(Error::Refused { code, .. }) => code,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_semaphore_has_so_many_permits() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let one = ana.semaphore("pool", 2).acquire().await.unwrap();
    let _two = bo.semaphore("pool", 2).no_wait().acquire().await.unwrap();
    let third = ana.semaphore("pool", 2).no_wait().acquire().await;
    assert!(matches!(third, Err(Error::NotAcquired(_))), "{third:?}");
    assert_eq!(code(ana.semaphore("pool", 3).no_wait().acquire().await), "other_kind");
    assert_eq!(code(ana.semaphore("pool", 0).acquire().await), "bad_request");
    one.release().await.unwrap();
    let third = ana.semaphore("pool", 2).no_wait().acquire().await.unwrap();
    let fenced = ana.register("pool").put("x", &third).await;
    assert_eq!(code(fenced), "bad_request", "permits can't be fenced");
    node.end().await;
}

#[tokio::test]
async fn several_names_are_taken_in_one_step() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let right = ana.lock("right").acquire().await.unwrap();
    let waits = tokio::spawn({
        let bo = bo.clone();
        async move { bo.locks(["right", "left"]).acquire().await.unwrap() }
    });
    // Bo stands in both lines: left is free and yet not to be had.
    eventually("bo stands in line", async || {
        matches!(ana.lock("left").no_wait().acquire().await, Err(Error::NotAcquired(_)))
    })
    .await;
    right.release().await.unwrap();
    let both = soon(waits).await.unwrap();
    assert_eq!(both.names(), ["left", "right"]);
    assert_eq!(code(bo.locks(["left", "middle"]).acquire().await), "already_held");
    both.release().await.unwrap();
    ana.locks(["left", "right"]).no_wait().acquire().await.unwrap();
    node.end().await;
}

#[tokio::test]
async fn a_reader_becomes_the_writer_and_a_reader_again() {
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
        bo.lock("page").shared().no_wait().acquire().await.is_err()
    })
    .await;
    // The second upgrade is refused: the two would wait for each other.
    assert_eq!(code(second.upgrade(None).await), "upgrade_blocked");
    second.release().await.unwrap();
    let mut first = soon(upgrading).await.unwrap();
    assert!(!first.is_shared() && first.token() > read_with);
    assert_eq!(first.health(), Health::Good);
    assert!(bo.lock("page").shared().no_wait().acquire().await.is_err());

    let token = first.token();
    first.downgrade().await.unwrap();
    assert!(first.is_shared() && first.token() == token);
    let beside = bo.lock("page").shared().no_wait().acquire().await.unwrap();
    drop(beside);
    first.release().await.unwrap();
    ana.lock("page").no_wait().acquire().await.unwrap();
    node.end().await;
}

#[tokio::test]
async fn a_reentrant_lock_is_taken_again_and_let_go_with_the_last_guard() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let outer = ana.lock("seat").reentrant().acquire().await.unwrap();
    let inner = ana.lock("seat").reentrant().no_wait().acquire().await.unwrap();
    let innermost = ana.clone().lock("seat").reentrant().acquire().await.unwrap();
    assert_eq!((inner.token(), innermost.token()), (outer.token(), outer.token()));
    let busy = async || bo.lock("seat").no_wait().acquire().await.is_err();
    assert!(busy().await, "another client does not get in");
    assert!(ana.lock("seat").no_wait().acquire().await.is_err(), "it must be asked for");

    outer.release().await.unwrap();
    assert!(busy().await);
    drop(inner);
    assert!(busy().await);
    assert_eq!(innermost.health(), Health::Good);
    innermost.release().await.unwrap();
    let guard = bo.lock("seat").no_wait().acquire().await.unwrap();
    guard.release().await.unwrap();

    let again = ana.lock("seat").reentrant().acquire().await.unwrap();
    assert_eq!(again.health(), Health::Good);
    node.end().await;
}

#[tokio::test]
async fn two_tasks_of_one_client_that_ask_at_once_share_a_reentrant_lock() {
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
async fn a_lock_that_others_count_on_does_not_change_its_mode() {
    let node = Node::start().await;
    let ana = node.client().await;
    let mut outer = ana.lock("page").reentrant().acquire().await.unwrap();
    let inner = ana.lock("page").reentrant().acquire().await.unwrap();
    assert_eq!(code(outer.downgrade().await), "reentered");
    inner.release().await.unwrap();
    outer.downgrade().await.unwrap();
    // What is held is not what is asked for: it stands in line behind itself.
    let other_mode = ana.lock("page").reentrant().no_wait().acquire().await;
    assert!(matches!(other_mode, Err(Error::NotAcquired(_))), "{other_mode:?}");
    node.end().await;
}
