//! A store that changes what it supports does not make the fence forget: its layout is decided
//! once.

use crate::rules::exclusive;
use crate::support::s3::{self, Fault, S3};
use holdfast_fence::object::{Layout, ObjectFence};
use holdfast_fence::{Error, Fence};
use std::sync::Arc;

async fn open(s3: &S3) -> Result<ObjectFence, Error> {
    ObjectFence::open(Arc::new(s3::client(&s3.url))).await
}

/// An S3-compatible store gained `If-Match` in an update. The fence, reopened, looked for single
/// objects, did not see the versions, and let 34 in after 35.
#[tokio::test]
async fn bucket_that_gains_if_match_keeps_its_tokens() {
    let s3 = S3::start().await;
    s3.fails(Fault::NoIfMatch);
    let before = open(&s3).await.unwrap();
    assert_eq!(before.layout(), Layout::Versioned);
    before.write("ledger", exclusive(35), "70".into()).await.unwrap();
    s3.fails(Fault::None);
    let after = open(&s3).await.unwrap();
    let late = after.write("ledger", exclusive(34), "50".into()).await.unwrap_err();
    assert_eq!(late.refused().expect("refused").later(), 35);
    // Both keep working, side by side.
    after.write("ledger", exclusive(36), "60".into()).await.unwrap();
    assert_eq!(before.read("ledger").await.unwrap().value, Some("60".into()));
    assert!(before.raise("ledger", exclusive(35)).await.unwrap_err().refused().is_some());
}

/// The same bucket, used by a version that did not record its layout: refused, instead of
/// forgotten.
#[tokio::test]
async fn versions_without_a_stored_layout_are_found() {
    let s3 = S3::start().await;
    s3.fails(Fault::NoIfMatch);
    open(&s3).await.unwrap().write("ledger", exclusive(35), "70".into()).await.unwrap();
    s3.forget_layout();
    s3.fails(Fault::None);
    let after = open(&s3).await.unwrap();
    for error in [
        after.write("ledger", exclusive(34), "50".into()).await.unwrap_err(),
        after.raise("ledger", exclusive(36)).await.unwrap_err(),
        after.read("ledger").await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("numbered versions"), "{error}");
    }
    // Other resources are new, and are let in.
    after.write("other", exclusive(34), "50".into()).await.unwrap();
}

/// And the other way round.
#[tokio::test]
async fn bucket_that_loses_if_match_is_refused() {
    let s3 = S3::start().await;
    open(&s3).await.unwrap().write("ledger", exclusive(35), "70".into()).await.unwrap();
    s3.fails(Fault::NoIfMatch);
    let error = open(&s3).await.unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("If-Match"), "{error}");
    s3.forget_layout();
    let after = open(&s3).await.unwrap();
    let error = after.write("ledger", exclusive(34), "50".into()).await.unwrap_err();
    assert!(error.to_string().contains("single object"), "{error}");
}

/// Many processes open a new bucket at the same time, while it is being updated: all agree.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_opens_agree_on_the_layout() {
    for _ in 0..5 {
        let s3 = S3::start().await;
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..8 {
            s3.fails(if number % 2 == 0 { Fault::NoIfMatch } else { Fault::None });
            let client = s3::client(&s3.url);
            tasks.spawn(async move { ObjectFence::open(Arc::new(client)).await });
            tokio::task::yield_now().await;
        }
        s3.fails(Fault::None);
        let fences: Vec<ObjectFence> =
            tasks.join_all().await.into_iter().filter_map(Result::ok).collect();
        assert!(fences.windows(2).all(|two| two[0].layout() == two[1].layout()), "{fences:?}");
    }
}
