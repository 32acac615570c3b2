//! A call whose future is dropped has either landed by the time a later call returns, or never
//! lands.
//!
//! A program drops a write because of a timeout, and then writes something else: if the first write
//! landed after the second, the second would be lost, though it was acknowledged.

use crate::rules::exclusive;
use crate::server::Node;
use crate::support::postgres::Server;
use crate::support::s3::{self, S3};
use holdfast_fence::object::ObjectFence;
use holdfast_fence::postgres::Postgres;
use holdfast_fence::register::Register;
use holdfast_fence::sqlite::Sqlite;
use holdfast_fence::{Fence, Token};
use object_store::memory::InMemory;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Polls the future this many times, or until it is done, and drops it.
async fn dropped_after<T>(polls: u32, future: impl Future<Output = T>) {
    let mut future = std::pin::pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 || future.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        left -= 1;
        Poll::Pending
    })
    .await;
}

/// Drops a write of one handle at each of its awaits, calls through another handle, and checks
/// whether the first one lands later.
async fn never_lands_late(old: &dyn Fence, new: &dyn Fence, token: Token) {
    for round in 0..60_u32 {
        let (dropped, later) = (format!("dropped-{round}"), format!("later-{round}"));
        // It may need fewer polls than this; then it lands, which is fine too.
        let write = old.write("ledger", token, dropped.clone().into());
        let give_up = tokio::time::timeout(Duration::from_millis(u64::from(round % 7)), write);
        dropped_after(round % 12, give_up).await;
        let found = if round % 2 == 0 {
            new.write("ledger", token, later.clone().into()).await.unwrap();
            later
        } else {
            let found = new.raise("ledger", token).await.unwrap().value.unwrap();
            String::from_utf8(found.to_vec()).unwrap()
        };
        tokio::time::sleep(Duration::from_millis(5)).await;
        let there = new.read("ledger").await.unwrap().value.unwrap();
        assert_eq!(there, found, "round {round}: a dropped write has come after");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fence.db");
    let (old, new) = (Sqlite::open(&path).unwrap(), Sqlite::open(&path).unwrap());
    never_lands_late(&old, &new, exclusive(34)).await;
}

/// The dropped write was waiting for the database behind another process. When that had finished,
/// the write went on, although its caller was long gone, and overwrote what another handle had
/// written.
#[tokio::test(flavor = "multi_thread")]
async fn in_sqlite_while_the_database_is_locked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fence.db");
    let (old, new) = (Sqlite::open(&path).unwrap(), Sqlite::open(&path).unwrap());
    let other = rusqlite::Connection::open(&path).unwrap();
    for round in 0..10 {
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let write = old.write("ledger", exclusive(34), "dropped".into());
        assert!(tokio::time::timeout(Duration::from_millis(20), write).await.is_err());
        other.execute_batch("COMMIT").unwrap();
        let later = format!("later-{round}");
        new.write("ledger", exclusive(34), later.clone().into()).await.unwrap();
        // SQLite retries the lock at least every 100 ms.
        tokio::time::sleep(Duration::from_millis(150)).await;
        assert_eq!(new.read("ledger").await.unwrap().value, Some(later.into()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_local_disk() {
    let folder = tempfile::tempdir().unwrap();
    let old = ObjectFence::local(folder.path()).await.unwrap();
    let new = ObjectFence::local(folder.path()).await.unwrap();
    never_lands_late(&old, &new, exclusive(34)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_s3() {
    let s3 = S3::start().await;
    let old = ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap();
    let new = ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap();
    never_lands_late(&old, &new, exclusive(34)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_memory() {
    let fence = ObjectFence::open(Arc::new(InMemory::new())).await.unwrap();
    never_lands_late(&fence, &fence.clone(), exclusive(34)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_holdfasts_register() {
    let node = Node::start().await;
    let client = node.client().await;
    let guard = client.lock("ledger").acquire().await.unwrap();
    let fence = Register::new(&client, &guard).unwrap();
    never_lands_late(&fence, &fence, fence.token()).await;
    drop((guard, client));
    node.end().await;
}

/// The dropped write was waiting for its row behind another transaction.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: ./test fences"]
async fn in_postgresql() {
    let server = Server::start().await;
    let old = Postgres::connect(&server.config()).await.unwrap();
    let new = Postgres::connect(&server.config()).await.unwrap();
    never_lands_late(&old, &new, exclusive(34)).await;

    let (other, connection) =
        tokio_postgres::connect(&server.config(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    for round in 0..10 {
        let lock = "BEGIN; SELECT 1 FROM holdfast_fences WHERE resource = 'ledger' FOR UPDATE";
        other.batch_execute(lock).await.unwrap();
        let write = old.write("ledger", exclusive(34), "dropped".into());
        assert!(tokio::time::timeout(Duration::from_millis(50), write).await.is_err());
        let later = format!("later-{round}");
        let writes = new.write("ledger", exclusive(34), later.clone().into());
        let (written, _) = tokio::join!(writes, async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            other.batch_execute("COMMIT").await.unwrap();
        });
        written.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(new.read("ledger").await.unwrap().value, Some(later.into()));
    }
}
