//! What is specific to object stores: lost replies, writers that are stopped between reading and
//! creating, stores that can't compare.

use crate::rules::exclusive;
use crate::support::gate::{Gate, Gated};
use crate::support::s3::{self, Fault, S3};
use holdfast_fence::object::{Layout, ObjectFence};
use holdfast_fence::{Error, Fence};
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use std::sync::Arc;

/// The S3 client sends a put again when the reply is a 500. If the first one was carried out, the
/// second finds the object changed, by itself: the writer was told that someone else had written,
/// and decided again based on its own write.
#[tokio::test]
async fn put_with_a_lost_reply_recognises_its_own_write() {
    let s3 = S3::start().await;
    let fence = ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap();
    for token in 1..=5 {
        s3.fails(Fault::LoseAnswers(1));
        let found = fence.raise("ledger", exclusive(token)).await.unwrap();
        assert_eq!(found.highest.exclusive, token);
        s3.fails(Fault::LoseAnswers(1));
        fence.write("ledger", exclusive(token), token.to_string().into()).await.unwrap();
        assert_eq!(fence.read("ledger").await.unwrap().value, Some(token.to_string().into()));
    }
    // However often the reply is lost: a put that was carried out is found.
    s3.fails(Fault::LoseAnswers(1_000));
    fence.write("ledger", exclusive(6), "6".into()).await.unwrap();
    assert_eq!(fence.read("ledger").await.unwrap().value, Some("6".into()));
}

/// An ETag may be a hash of the body alone. An object that was changed and changed back would have
/// its old ETag again, and a writer that had read it before would replace it.
#[tokio::test]
async fn rewriting_an_old_value_creates_a_new_object() {
    let s3 = S3::start().await;
    let fence = ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap();
    let raw = s3::client(&s3.url);
    let e_tag = async || raw.get(&Path::from("ledger")).await.unwrap().meta.e_tag.unwrap();
    fence.write("ledger", exclusive(34), "100".into()).await.unwrap();
    let before = e_tag().await;
    fence.write("ledger", exclusive(34), "70".into()).await.unwrap();
    fence.write("ledger", exclusive(34), "100".into()).await.unwrap();
    assert_ne!(e_tag().await, before);
}

#[tokio::test]
async fn bucket_without_conditional_writes_is_refused() {
    for fault in [Fault::IgnoreConditions, Fault::NoConditions] {
        let s3 = S3::start().await;
        s3.fails(fault);
        let error = ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{fault:?}: {error}");
        assert!(error.to_string().contains("can't be a fence, nothing was written"), "{error}");
        assert_eq!(s3.keys(), [""; 0], "{fault:?}");
    }
    // And one whose user has switched them off.
    let s3 = S3::start().await;
    let off = AmazonS3Builder::new()
        .with_endpoint(&s3.url)
        .with_bucket_name("shop")
        .with_region("us-east-1")
        .with_access_key_id("tests")
        .with_secret_access_key("tests")
        .with_allow_http(true)
        .with_conditional_put(S3ConditionalPut::Disabled)
        .build()
        .unwrap();
    let error = ObjectFence::open(Arc::new(off)).await.unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

#[tokio::test]
async fn unavailable_bucket_fails_without_partial_writes() {
    let s3 = S3::start().await;
    let fence = ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap();
    fence.write("ledger", exclusive(34), "100".into()).await.unwrap();
    s3.fails(Fault::Down);
    let error = fence.write("ledger", exclusive(35), "70".into()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let error = ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    s3.fails(Fault::None);
    let there = fence.read("ledger").await.unwrap();
    assert_eq!((there.highest.any, there.value), (34, Some("100".into())));
}

#[tokio::test]
async fn foreign_objects_are_left_alone() {
    let store = Arc::new(InMemory::new());
    let fence = ObjectFence::open(store.clone()).await.unwrap();
    for body in ["tea,3\n", "", "holdfast-fence/1 exclusive=1\n", "holdfast-fence/2 \n"] {
        store.put(&Path::from("prices.csv"), body.into()).await.unwrap();
        let error = fence.write("prices.csv", exclusive(35), "tea,4".into()).await.unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{body:?}: {error}");
        let there = store.get(&Path::from("prices.csv")).await.unwrap().bytes().await.unwrap();
        assert_eq!(there, body);
    }
}

/// `a`, `/a` and `a/` were one object, so a holder of one lock was refused because of another's. On
/// local disk, `a/00000000000000000001` was where the first version of `a` belongs, and one of them
/// could never be written.
#[tokio::test]
async fn no_two_names_share_an_object() {
    let folder = tempfile::tempdir().unwrap();
    let memory = ObjectFence::open(Arc::new(InMemory::new())).await.unwrap();
    let disk = ObjectFence::local(folder.path()).await.unwrap();
    let s3 = S3::start().await;
    let bucket = ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap();
    let version = "00000000000000000001";
    let names = [
        "a".into(),
        "/a".into(),
        "a/".into(),
        "a//".into(),
        "//a".into(),
        "a/b".into(),
        "a//b".into(),
        "a/./b".into(),
        "a/../b".into(),
        "%2Fa".into(),
        "a%2Fb".into(),
        "a\\b".into(),
        "a b".into(),
        "a\tb".into(),
        "a#1".into(),
        format!("a/{version}"),
        format!("a/{version}/{version}"),
        version.to_owned(),
        "/".into(),
        "..".into(),
        "ä".into(),
        "a?b&c=d".into(),
    ];
    for fence in [&memory, &disk, &bucket] {
        for (index, name) in names.iter().enumerate() {
            let token = exclusive(100 - index as u64);
            let written = fence.write(name, token, name.clone().into()).await;
            written.unwrap_or_else(|error| panic!("{name:?}: {error}"));
        }
        for name in &names {
            let value = fence.read(name).await.unwrap().value;
            assert_eq!(value, Some(name.clone().into()), "{name:?} in {:?}", fence.layout());
        }
    }
}

#[tokio::test]
async fn unstorable_names_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let memory = ObjectFence::open(Arc::new(InMemory::new())).await.unwrap();
    let disk = ObjectFence::local(folder.path()).await.unwrap();
    let (long, longer) = ("x".repeat(256), "x".repeat(513));
    for (fence, name) in
        [(&memory, ""), (&memory, "a\0b"), (&memory, &longer), (&disk, &long), (&disk, "")]
    {
        let error = fence.write(name, exclusive(35), "x".into()).await.unwrap_err();
        assert!(matches!(error, Error::InvalidResource { .. }), "{name:?}: {error}");
    }
}

/// A folder of versions, and two fences in it: one passes a gate at each put.
pub(crate) struct Gatehouse {
    _folder: tempfile::TempDir,
    pub(crate) direct: ObjectFence,
    pub(crate) gated: ObjectFence,
    pub(crate) gate: Arc<Gate>,
    folder_of_ledger: std::path::PathBuf,
}

pub(crate) async fn gatehouse() -> Gatehouse {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn ObjectStore> =
        Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap());
    let gate = Arc::<Gate>::default();
    let direct = ObjectFence::open(store.clone()).await.unwrap();
    let gated = Gated { store, gate: gate.clone() };
    let opening = tokio::spawn(async move { ObjectFence::open(Arc::new(gated)).await });
    // The probe's three puts.
    for _ in 0..3 {
        gate.reached.notified().await;
        gate.opened.notify_one();
    }
    let gated = opening.await.unwrap().unwrap();
    assert_eq!(gated.layout(), Layout::Versioned);
    let folder_of_ledger = folder.path().join("ledger");
    Gatehouse { _folder: folder, direct, gated, gate, folder_of_ledger }
}

/// A writer read version 1, and was stopped before it created version 2. Others created version 2,
/// and so many after it that version 2 was removed. The writer woke up, created version 2 once
/// more, and took that for success, though nobody would ever read it.
#[tokio::test]
async fn removed_version_number_is_not_reused() {
    let Gatehouse { direct, gated, gate, folder_of_ledger, .. } = &gatehouse().await;
    direct.write("ledger", exclusive(34), "100".into()).await.unwrap();
    let gated = gated.clone();
    let mut stopped =
        tokio::spawn(async move { gated.write("ledger", exclusive(34), "50".into()).await });
    gate.reached.notified().await;
    for balance in 0..40 {
        let balance = balance.to_string().into();
        direct.write("ledger", exclusive(34), balance).await.unwrap();
    }
    let second = folder_of_ledger.join("00000000000000000002");
    assert!(!second.exists(), "old versions are removed");
    gate.opened.notify_one();
    // It looks again, and writes above all others.
    tokio::select! {
        done = &mut stopped => panic!("it took version 2 for its own: {done:?}"),
        () = gate.reached.notified() => gate.opened.notify_one(),
    }
    stopped.await.unwrap().unwrap();
    assert_eq!(direct.read("ledger").await.unwrap().value, Some("50".into()));
    assert!(!second.exists(), "and what it had created is removed too");
}

/// The same, with a later holder in between: then it is refused.
#[tokio::test]
async fn stopped_writer_whose_version_was_removed_is_refused() {
    let Gatehouse { direct, gated, gate, .. } = &gatehouse().await;
    direct.write("ledger", exclusive(34), "100".into()).await.unwrap();
    let gated = gated.clone();
    let stopped =
        tokio::spawn(async move { gated.write("ledger", exclusive(34), "50".into()).await });
    gate.reached.notified().await;
    for balance in 0..40 {
        direct.write("ledger", exclusive(35), balance.to_string().into()).await.unwrap();
    }
    gate.opened.notify_one();
    let error = stopped.await.unwrap().unwrap_err();
    assert_eq!(error.refused().expect("refused").later(), 35);
    assert_eq!(direct.read("ledger").await.unwrap().value, Some("39".into()));
}

#[tokio::test]
async fn old_versions_are_removed() {
    let Gatehouse { direct, folder_of_ledger, .. } = &gatehouse().await;
    for balance in 0..100 {
        direct.write("ledger", exclusive(34), balance.to_string().into()).await.unwrap();
    }
    let versions = std::fs::read_dir(folder_of_ledger).unwrap().count();
    assert!(versions < 12, "{versions} versions are kept");
}
