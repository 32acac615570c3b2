//! A holder is stopped past its lease, wakes up, and writes. In each store: refused with the fence,
//! and damage without it.

use crate::server::Node;
use crate::support::holder::{Holder, LOCK};
use crate::support::postgres::Server;
use crate::support::s3::S3;
use crate::support::service::Service;
use crate::support::store::{self, LEDGER};
use holdfast_fence::Token;
use holdfast_fence::sqlite::Sqlite;
use std::sync::Arc;
use std::time::Duration;

/// When the old holder wakes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wakes {
    /// The new holder has read and written.
    AfterTheWrite,
    /// The new holder has read, and not written yet.
    BetweenReadAndWrite,
}

/// The result.
#[derive(Debug)]
pub(crate) struct StoppedResult {
    /// What the old holder printed after its attempt to write.
    old: String,
    /// What is in the ledger in the end.
    balance: String,
}

/// The ledger holds 100. One holder takes off 50, and is stopped after it has read; the next takes
/// off 30. The first one stays stopped for `longer` than its lease.
pub(crate) async fn story(
    node: &Node,
    store: &str,
    fenced: bool,
    wakes: Wakes,
    longer: Duration,
) -> StoppedResult {
    let client = node.client().await;
    let first = client.lock(LOCK).acquire().await.unwrap();
    let fence = store::open(store, &client, &first).await.unwrap();
    fence.write(LEDGER, Token::try_from(&first).unwrap(), "100".into()).await.unwrap();
    drop(fence);
    first.release().await.unwrap();

    let job = if fenced { "once" } else { "once-unfenced" };
    let mut old = Holder::start(job, &node.url, store);
    let printed = old.next().await.expect("the old holder reads");
    assert!(printed.starts_with("read 100 with token "), "{printed}");
    old.stop();

    // Granted when the lease of the stopped one is over.
    let guard = client.lock(LOCK).acquire().await.unwrap();
    assert!(guard.needs_recovery(), "the stopped holder did not release");
    tokio::time::sleep(longer).await;
    let fence = store::open(store, &client, &guard).await.unwrap();
    let token = Token::try_from(&guard).unwrap();
    let read = if fenced {
        store::text(fence.raise(LEDGER, token).await.unwrap().value)
    } else {
        store::read(&*fence).await
    };
    let balance = (read.parse::<i64>().unwrap() - 30).to_string();
    let write = async {
        if fenced {
            fence.write(LEDGER, token, balance.into()).await.unwrap();
        } else {
            store::write_unfenced(store, &client, &guard, balance.into()).await;
        }
    };
    let old_writes = async {
        old.wake();
        old.tell("write").await;
        old.next().await.expect("the old holder writes, or is refused")
    };
    let old = match wakes {
        Wakes::AfterTheWrite => {
            write.await;
            old_writes.await
        }
        Wakes::BetweenReadAndWrite => {
            let old = old_writes.await;
            write.await;
            old
        }
    };
    let balance = store::read(&*fence).await;
    drop(fence);
    guard.release().await.unwrap();
    StoppedResult { old, balance }
}

/// With the fence, in both interleavings: the old holder is refused, and the new one's work is
/// kept.
pub(crate) async fn fenced(store: &str, longer: Duration) {
    let node = Node::start().await;
    for wakes in [Wakes::AfterTheWrite, Wakes::BetweenReadAndWrite] {
        let outcome = story(&node, store, true, wakes, longer).await;
        assert!(outcome.old.contains("is refused"), "{wakes:?}: {outcome:?}");
        assert!(outcome.old.contains("a later holder has shown token"), "{wakes:?}: {outcome:?}");
        assert_eq!(outcome.balance, "70", "{wakes:?}: {outcome:?}");
    }
    node.end().await;
}

/// Without it: one of two withdrawals is gone, though both were acknowledged.
async fn unfenced(store: &str) {
    let node = Node::start().await;
    for (wakes, balance) in [(Wakes::AfterTheWrite, "50"), (Wakes::BetweenReadAndWrite, "70")] {
        let outcome = story(&node, store, false, wakes, Duration::ZERO).await;
        assert_eq!(outcome.old, "written", "{wakes:?}: {outcome:?}");
        assert_eq!(outcome.balance, balance, "{wakes:?}: both together make 20");
    }
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_sqlite_a_stopped_holder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("ledger.db");
    fenced(&format!("sqlite:{}", database.display()), Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_sqlite_without_the_fence_an_update_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    unfenced(&format!("sqlite:{}", folder.path().join("ledger.db").display())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_local_disk_a_stopped_holder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fenced(&format!("disk:{}", folder.path().display()), Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_local_disk_without_the_fence_an_update_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    unfenced(&format!("disk:{}", folder.path().display())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_s3_a_stopped_holder_is_refused() {
    let s3 = S3::start().await;
    fenced(&format!("s3:{}", s3.url), Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_s3_without_the_fence_an_update_is_lost() {
    let s3 = S3::start().await;
    unfenced(&format!("s3:{}", s3.url)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_an_http_service_a_stopped_holder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let numbers = Arc::new(Sqlite::open(folder.path().join("numbers.db")).unwrap());
    let service = Service::start(numbers).await;
    fenced(&format!("http:{}", service.url), Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_an_http_service_without_the_fence_an_update_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let numbers = Arc::new(Sqlite::open(folder.path().join("numbers.db")).unwrap());
    let service = Service::start(numbers).await;
    unfenced(&format!("http:{}", service.url)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_holdfasts_register_a_stopped_holder_is_refused() {
    fenced("register:", Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_holdfasts_register_without_the_fence_an_update_is_lost() {
    unfenced("register:").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: ./test fences"]
async fn in_postgresql_a_stopped_holder_is_refused() {
    let server = Server::start().await;
    fenced(&format!("postgres:{}", server.config()), Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: ./test fences"]
async fn in_postgresql_without_the_fence_an_update_is_lost() {
    let server = Server::start().await;
    unfenced(&format!("postgres:{}", server.config())).await;
}
