//! Many holders at once: nobody is told to try again while the others make progress.

use crate::rules::{exclusive, shared};
use crate::support::s3::{self, S3};
use holdfast_fence::object::ObjectFence;
use holdfast_fence::{Error, Fence};
use object_store::memory::InMemory;
use std::sync::Arc;

/// Each writes once, with its own shared token.
async fn all_write(fences: Vec<Arc<dyn Fence>>, writers: u64) {
    let mut tasks = tokio::task::JoinSet::new();
    for number in 1..=writers {
        let fence = fences[usize::try_from(number).unwrap() % fences.len()].clone();
        tasks.spawn(async move {
            fence.write("ledger", shared(number), number.to_string().into()).await
        });
    }
    let failed: Vec<Error> = tasks.join_all().await.into_iter().filter_map(Result::err).collect();
    assert_eq!(failed.len(), 0, "of {writers}, for instance {}", failed[0]);
    assert_eq!(fences[0].read("ledger").await.unwrap().highest.any, writers);
}

/// After 50 attempts each, half of the holders were told that the resource was busy.
#[tokio::test(flavor = "multi_thread")]
async fn in_s3_four_hundred_shared_holders_all_write() {
    let s3 = S3::start().await;
    let fence = ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap();
    all_write(vec![Arc::new(fence)], 400).await;
}

/// The same with fences that know nothing of each other, as in several processes.
#[tokio::test(flavor = "multi_thread")]
async fn in_s3_shared_holders_of_many_processes_all_write() {
    let s3 = S3::start().await;
    let mut fences: Vec<Arc<dyn Fence>> = Vec::new();
    for _ in 0..20 {
        fences.push(Arc::new(ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap()));
    }
    all_write(fences, 60).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_local_disk_shared_holders_of_many_processes_all_write() {
    let folder = tempfile::tempdir().unwrap();
    let mut fences: Vec<Arc<dyn Fence>> = Vec::new();
    for _ in 0..8 {
        fences.push(Arc::new(ObjectFence::local(folder.path()).await.unwrap()));
    }
    all_write(fences, 80).await;
}

/// A holder's put hangs. The next holder, in the same process, does not wait for it to end.
#[tokio::test(flavor = "multi_thread")]
async fn hanging_put_does_not_block_the_next_holder() {
    use crate::support::gate::{Gate, Gated};
    let gate = Arc::<Gate>::default();
    let store = Gated { store: Arc::new(InMemory::new()), gate: gate.clone() };
    let opening = tokio::spawn(async move { ObjectFence::open(Arc::new(store)).await });
    // The probe's four puts, and that of the layout.
    for _ in 0..5 {
        gate.reached.notified().await;
        gate.opened.notify_one();
    }
    let fence = opening.await.unwrap().unwrap();
    let hangs = fence.clone();
    let hangs =
        tokio::spawn(async move { hangs.write("ledger", exclusive(34), "50".into()).await });
    gate.reached.notified().await;
    let next = fence.clone();
    let next = tokio::spawn(async move { next.raise("ledger", exclusive(35)).await });
    // It gets to its own put, though 34 still hangs; whichever goes on, 34 can't land after it.
    gate.reached.notified().await;
    gate.opened.notify_waiters();
    gate.opened.notify_one();
    let raised = tokio::spawn(async move {
        loop {
            gate.reached.notified().await;
            gate.opened.notify_one();
        }
    });
    assert_eq!(next.await.unwrap().unwrap().highest.any, 35);
    let _ = hangs.await.unwrap();
    raised.abort();
    assert_eq!(fence.read("ledger").await.unwrap().highest.any, 35);
}
