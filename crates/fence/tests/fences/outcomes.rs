//! What a call returns when a reply is lost, a disk fails, or others write before it looks: never
//! that nothing was written if something was, and never success if it may be gone after a crash.

use crate::objects::{Gatehouse, gatehouse};
use crate::rules::exclusive;
use crate::support::gate::DiskFault;
use crate::support::s3::{self, Fault, S3};
use holdfast_fence::object::ObjectFence;
use holdfast_fence::{Error, Fence};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How many writes a record remembers.
const REMEMBERED: u64 = 64;

/// 34's write was carried out. Before it checked whether its version was the first of its number,
/// 35 had written so often that the number counted as removed: 34 was told that it was refused.
#[tokio::test]
async fn on_disk_overtaken_write_has_taken_effect() {
    for later in [1, 8, 9, 20, REMEMBERED - 1] {
        let Gatehouse { direct, gated, gate, .. } = &gatehouse().await;
        gate.after.store(true, Ordering::Relaxed);
        let writer = gated.clone();
        let overtaken =
            tokio::spawn(async move { writer.write("ledger", exclusive(34), "50".into()).await });
        gate.reached.notified().await;
        for balance in 0..later {
            direct.write("ledger", exclusive(35), balance.to_string().into()).await.unwrap();
        }
        gate.opened.notify_one();
        let answer = overtaken.await.unwrap();
        assert!(answer.is_ok(), "{later} later: {answer:?}");
    }
}

/// The same, when so many have written that nobody remembers.
#[tokio::test]
async fn on_disk_forgotten_write_may_have_taken_effect() {
    let Gatehouse { direct, gated, gate, .. } = &gatehouse().await;
    gate.after.store(true, Ordering::Relaxed);
    let writer = gated.clone();
    let overtaken =
        tokio::spawn(async move { writer.write("ledger", exclusive(34), "50".into()).await });
    gate.reached.notified().await;
    for balance in 0..REMEMBERED {
        direct.write("ledger", exclusive(35), balance.to_string().into()).await.unwrap();
    }
    gate.opened.notify_one();
    let error = overtaken.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
}

/// The reply to 34's put was lost. Before its client sent it again, 35 had written: the second put
/// failed its condition, and 34, whose write 35 had read, was told that it was refused.
#[tokio::test]
async fn in_s3_overtaken_put_with_a_lost_reply_has_taken_effect() {
    for (later, is_new) in [(1, false), (1, true), (20, false), (20, true), (REMEMBERED - 1, false)]
    {
        let s3 = S3::start().await;
        let fence = ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap();
        if !is_new {
            fence.write("ledger", exclusive(34), "100".into()).await.unwrap();
        }
        s3.fails(Fault::HoldAnswer);
        let writer = fence.clone();
        let overtaken =
            tokio::spawn(async move { writer.write("ledger", exclusive(34), "50".into()).await });
        s3.held().await;
        for balance in 0..later {
            let found = fence.raise("ledger", exclusive(35)).await.unwrap();
            assert!(balance > 0 || found.value == Some("50".into()));
            if balance + 1 < later {
                fence.write("ledger", exclusive(35), balance.to_string().into()).await.unwrap();
            }
        }
        s3.go_on();
        // A raise is a write, so about twice as many followed as the loop has turns.
        match overtaken.await.unwrap() {
            Ok(()) => assert!(2 * later - 1 < REMEMBERED, "{later}"),
            Err(error) => {
                assert!(matches!(error, Error::Unknown { .. }), "{later}: {error}");
                assert!(2 * later > REMEMBERED, "{later}: {error}");
            }
        }
    }
}

/// The first put was carried out, and its reply lost; the second was denied, because the
/// credentials had expired. The writer was told that nothing was written.
#[tokio::test]
async fn in_s3_put_denied_on_retry_may_have_taken_effect() {
    for status in [401, 403, 404, 400] {
        let s3 = S3::start().await;
        let fence = ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap();
        fence.write("ledger", exclusive(34), "100".into()).await.unwrap();
        s3.fails(Fault::LoseAnswerThen(status));
        // It can still read, and finds its write.
        let answer = fence.write("ledger", exclusive(35), "70".into()).await;
        assert!(answer.is_ok(), "{status}: {answer:?}");
        assert_eq!(fence.read("ledger").await.unwrap().value, Some("70".into()));
    }
}

#[tokio::test]
async fn in_s3_put_denied_immediately_was_not_written() {
    for status in [401, 403, 400, 413] {
        let s3 = S3::start().await;
        let fence = ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap();
        fence.write("ledger", exclusive(34), "100".into()).await.unwrap();
        s3.fails(Fault::Answer(status));
        let error = fence.write("ledger", exclusive(35), "70".into()).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{status}: {error}");
        s3.fails(Fault::None);
        assert_eq!(fence.read("ledger").await.unwrap().highest.any, 34);
    }
}

/// A bucket whose replies are lost was declared to lack conditional writes: the probe had run into
/// its own object.
#[tokio::test]
async fn in_s3_lost_probe_reply_does_not_reject_the_bucket() {
    let s3 = S3::start().await;
    s3.fails(Fault::LoseAnswers(1));
    let opened = ObjectFence::open(Arc::new(s3::client(&s3.url))).await;
    assert!(opened.is_ok(), "{opened:?}");
}

/// The version existed when the folder could not be synced. A full disk was reported as "nothing
/// was written", another failure as success, though a crash could have lost it.
#[tokio::test]
async fn on_disk_failed_folder_sync_leaves_the_outcome_unknown() {
    for error in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::Other] {
        let Gatehouse { direct, gated, gate, .. } = &gatehouse().await;
        direct.write("ledger", exclusive(34), "100".into()).await.unwrap();
        *gate.fails.lock().unwrap() = Some(DiskFault { error, done: true });
        let answer = gated.write("ledger", exclusive(34), "50".into()).await.unwrap_err();
        assert!(matches!(answer, Error::Unknown { .. }), "{error:?}: {answer}");
        assert!(answer.to_string().contains("may have taken effect"), "{answer}");
        let answer = gated.raise("ledger", exclusive(35)).await.unwrap_err();
        assert!(matches!(answer, Error::Unknown { .. }), "{error:?}: {answer}");
    }
}

#[tokio::test]
async fn on_disk_failed_version_is_absent() {
    for (error, is_full) in [(ErrorKind::StorageFull, true), (ErrorKind::Other, false)] {
        let Gatehouse { direct, gated, gate, .. } = &gatehouse().await;
        direct.write("ledger", exclusive(34), "100".into()).await.unwrap();
        *gate.fails.lock().unwrap() = Some(DiskFault { error, done: false });
        let answer = gated.write("ledger", exclusive(34), "50".into()).await.unwrap_err();
        assert_eq!(matches!(answer, Error::Full { .. }), is_full, "{error:?}: {answer}");
        assert!(answer.to_string().contains("nothing was written"), "{answer}");
        assert_eq!(direct.read("ledger").await.unwrap().value, Some("100".into()));
    }
}

/// A writer that is killed between writing a version and giving it its name leaves a file behind,
/// which nobody ever removed.
#[tokio::test]
async fn on_disk_leftovers_of_killed_writers_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let fence = ObjectFence::local(folder.path()).await.unwrap();
    fence.write("ledger", exclusive(34), "100".into()).await.unwrap();
    let left = folder.path().join("ledger/00000000000000000002#1");
    std::fs::write(&left, "half a versi").unwrap();
    for balance in 0..20 {
        fence.write("ledger", exclusive(34), balance.to_string().into()).await.unwrap();
    }
    assert!(!left.exists());
}

/// The put was carried out, and its reply lost. The error's text was searched for `NotImplemented`,
/// which was in the resource's name: the writer was told that nothing was written.
#[tokio::test]
async fn in_s3_resource_names_do_not_affect_error_parsing() {
    for name in ["NotImplemented", "a/NotImplemented.csv", "status code: 4", "x status code: 403 y"]
    {
        let s3 = S3::start().await;
        let fence = ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap();
        s3.fails(Fault::LoseAnswerThen(503));
        let answer = fence.write(name, exclusive(35), "70".into()).await;
        assert!(answer.is_ok(), "{name}: {answer:?}");
        assert_eq!(fence.read(name).await.unwrap().value, Some("70".into()), "{name}");
    }
}

/// A gateway in front of the bucket answered 501 although the put was carried out.
#[tokio::test]
async fn in_s3_unimplemented_put_may_have_taken_effect() {
    let s3 = S3::start().await;
    let fence = ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap();
    fence.write("ledger", exclusive(34), "100".into()).await.unwrap();
    s3.fails(Fault::DoneButNotImplemented);
    let answer = fence.write("ledger", exclusive(35), "70".into()).await;
    assert!(answer.is_ok(), "it finds its own write: {answer:?}");
    // It was not carried out: nobody knows, because it may still be.
    s3.fails(Fault::NoConditions);
    let error = fence.write("ledger", exclusive(35), "60".into()).await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    assert!(!error.to_string().contains("nothing was written"), "{error}");
}
