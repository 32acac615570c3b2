//! What all fences have in common, whatever they keep their numbers in.

use crate::support::s3::{self, S3};
use holdfast_fence::object::{Layout, ObjectFence};
use holdfast_fence::sqlite::Sqlite;
use holdfast_fence::{Fence, Fenced, Highest, Token};
use object_store::memory::InMemory;
use proptest::prelude::*;
use std::sync::Arc;

pub(crate) fn exclusive(number: u64) -> Token {
    Token::exclusive(number).unwrap()
}

pub(crate) fn shared(number: u64) -> Token {
    Token::shared(number).unwrap()
}

/// The behaviour that all fences share. `resource` must be new.
pub(crate) async fn behaves(fence: &dyn Fence, resource: &str) {
    let highest = |exclusive, any| Highest { exclusive, any };
    assert_eq!(fence.read(resource).await.unwrap(), Fenced::default());

    // Raised before there is a value, and then written.
    let raised = fence.raise(resource, exclusive(34)).await.unwrap();
    assert_eq!(raised, Fenced { highest: highest(34, 34), value: None });
    fence.write(resource, exclusive(34), "a".into()).await.unwrap();
    fence.write(resource, exclusive(34), "b".into()).await.unwrap();

    // The next holder raises; the old one can't do anything any more.
    let raised = fence.raise(resource, exclusive(35)).await.unwrap();
    assert_eq!(raised, Fenced { highest: highest(35, 35), value: Some("b".into()) });
    for token in [exclusive(34), shared(34)] {
        let write = fence.write(resource, token, "late".into()).await.unwrap_err();
        let raise = fence.raise(resource, token).await.unwrap_err();
        for refused in [write, raise] {
            let refused = refused.refused().unwrap_or_else(|| panic!("{refused}")).clone();
            assert_eq!(refused.shown, token);
            assert_eq!(refused.highest, highest(35, 35));
            assert_eq!(refused.later(), 35);
        }
    }
    assert_eq!(fence.read(resource).await.unwrap(), raised, "a refusal leaves no trace");

    // Readers share, in any order; a writer from between them is refused.
    fence.raise(resource, shared(38)).await.unwrap();
    fence.write(resource, shared(36), "c".into()).await.unwrap();
    let refused = fence.write(resource, exclusive(37), "late".into()).await.unwrap_err();
    assert!(refused.to_string().contains("token 37 is refused"), "{refused}");
    assert!(refused.to_string().contains("token 38;shared"), "{refused}");
    let now = fence.raise(resource, exclusive(39)).await.unwrap();
    assert_eq!(now, Fenced { highest: highest(39, 39), value: Some("c".into()) });

    // Any bytes are a value, and resources don't affect each other.
    let bytes: Vec<u8> = (0..=255).collect();
    fence.write(resource, exclusive(39), bytes.clone().into()).await.unwrap();
    assert_eq!(fence.read(resource).await.unwrap().value, Some(bytes.into()));
    fence.write(resource, exclusive(39), "".into()).await.unwrap();
    assert_eq!(fence.read(resource).await.unwrap().value, Some("".into()));
    let other = format!("{resource}-2");
    fence.write(&other, exclusive(1), "other".into()).await.unwrap();
    assert_eq!(fence.read(&other).await.unwrap().highest, highest(1, 1));
}

/// Many at once, each with its own token: each write is decided from what was there, so the numbers
/// never fall, and the last value is that of the highest token that was not refused.
pub(crate) async fn many_at_once(fence: Arc<dyn Fence>, resource: &'static str) {
    let mut tasks = tokio::task::JoinSet::new();
    for number in 1..=12 {
        let fence = fence.clone();
        tasks.spawn(async move {
            let written = fence.write(resource, exclusive(number), number.to_string().into()).await;
            match written {
                Ok(()) => Some(number),
                Err(error) => {
                    error.refused().unwrap_or_else(|| panic!("{error}"));
                    None
                }
            }
        });
    }
    let passed: Vec<u64> = tasks.join_all().await.into_iter().flatten().collect();
    let last = *passed.iter().max().unwrap();
    assert_eq!(last, 12, "nobody can refuse the highest");
    let there = fence.read(resource).await.unwrap();
    assert_eq!(there.value, Some(last.to_string().into()));
    assert_eq!(there.highest, Highest { exclusive: last, any: last });
}

/// Gives the same random tokens to the store and to the pure rule.
fn agrees_with_the_rule(fence: &dyn Fence, runtime: &tokio::runtime::Runtime, cases: u32) {
    let step = (1..12u64, any::<bool>(), any::<bool>());
    let steps = prop::collection::vec(step, 1..15);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let case = std::cell::Cell::new(0);
    let run = runner.run(&steps, |steps| {
        case.set(case.get() + 1);
        let resource = format!("case-{}", case.get());
        let mut rule = Highest::default();
        for (number, is_shared, writes) in steps {
            let token = if is_shared { shared(number) } else { exclusive(number) };
            let expected = rule.admit(&resource, token);
            let done = runtime.block_on(async {
                if writes {
                    fence.write(&resource, token, number.to_string().into()).await
                } else {
                    fence.raise(&resource, token).await.map(drop)
                }
            });
            match (done, expected) {
                (Ok(()), Ok(after)) => rule = after,
                (Err(error), Err(expected)) => {
                    prop_assert_eq!(error.refused(), Some(&expected), "{}", error);
                }
                (done, expected) => prop_assert!(false, "{:?} is not {:?}", done, expected),
            }
            let there = runtime.block_on(fence.read(&resource)).unwrap();
            prop_assert_eq!(there.highest, rule);
        }
        Ok(())
    });
    run.unwrap();
}

#[tokio::test]
async fn sqlite_behaves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fence.db");
    let fence = Sqlite::open(&path).unwrap();
    behaves(&fence, "ledger").await;
    many_at_once(Arc::new(fence), "crowded").await;
    // What was seen is still there for the next process.
    let again = Sqlite::open(&path).unwrap();
    assert_eq!(again.read("ledger").await.unwrap().highest.any, 39);
}

#[test]
fn sqlite_statements_follow_the_rule() {
    let folder = tempfile::tempdir().unwrap();
    let fence = Sqlite::open(folder.path().join("fence.db")).unwrap();
    agrees_with_the_rule(&fence, &tokio::runtime::Runtime::new().unwrap(), 30);
}

#[tokio::test]
async fn in_memory_object_store_behaves() {
    let fence = ObjectFence::open(Arc::new(InMemory::new())).await.unwrap();
    assert_eq!(fence.layout(), Layout::Conditional);
    behaves(&fence, "ledger").await;
    many_at_once(Arc::new(fence), "crowded").await;
}

#[test]
fn object_store_follows_the_rule() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let fence = runtime.block_on(ObjectFence::open(Arc::new(InMemory::new()))).unwrap();
    agrees_with_the_rule(&fence, &runtime, 100);
}

#[tokio::test]
async fn s3_bucket_behaves() {
    let s3 = S3::start().await;
    let fence = ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap();
    assert_eq!(fence.layout(), Layout::Conditional);
    assert_eq!(s3.keys(), [""; 0], "the probe is removed again");
    behaves(&fence, "ledgers/7").await;
    many_at_once(Arc::new(fence), "crowded").await;
}

#[tokio::test]
async fn local_disk_behaves() {
    let folder = tempfile::tempdir().unwrap();
    let fence = ObjectFence::local(folder.path()).await.unwrap();
    assert_eq!(fence.layout(), Layout::Versioned);
    behaves(&fence, "ledgers/7").await;
    many_at_once(Arc::new(fence), "crowded").await;
    let again = ObjectFence::local(folder.path()).await.unwrap();
    assert_eq!(again.read("ledgers/7").await.unwrap().highest.any, 39);
}

#[test]
fn local_disk_follows_the_rule() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let fence = runtime.block_on(ObjectFence::local(folder.path())).unwrap();
    agrees_with_the_rule(&fence, &runtime, 10);
}
