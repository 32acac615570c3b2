//! Random concurrent calls, some of them dropped, with each result judged by the rule: it must be
//! explained by the calls that were in progress or over.

use crate::rules::{exclusive, shared};
use crate::support::postgres::Server;
use crate::support::s3::{self, Fault, S3};
use holdfast_fence::object::ObjectFence;
use holdfast_fence::postgres::Postgres;
use holdfast_fence::sqlite::Sqlite;
use holdfast_fence::{Error, Fence, Mode, Token};
use object_store::memory::InMemory;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const TASKS: u64 = 4;
const CALLS: u64 = 25;
/// Few, so that calls often conflict.
const TOKENS: u64 = 8;

/// One call: when it began and ended, on a clock that counts events, and its result.
#[derive(Debug)]
struct Call {
    token: Token,
    /// What it wrote; `None` for a raise.
    value: Option<String>,
    began: u64,
    ended: u64,
    answer: Answer,
}

#[derive(Debug, PartialEq)]
enum Answer {
    Passed,
    Refused { later: u64 },
    Unknown,
}

fn conflict(one: Token, other: Token) -> bool {
    [one.mode(), other.mode()].contains(&Mode::Exclusive)
}

async fn calls(handles: Vec<Arc<dyn Fence>>) {
    let clock = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let fence = handles[usize::try_from(task).unwrap() % handles.len()].clone();
        let clock = clock.clone();
        tasks.spawn(async move {
            let mut calls = Vec::new();
            for number in 0..CALLS {
                let random = RandomState::new().hash_one(number);
                // They rise in the long run, like those of a lock.
                let number_shown = 1 + number / 2 + random % TOKENS;
                let is_shared = (random >> 8) % 4 == 0;
                let token = if is_shared { shared(number_shown) } else { exclusive(number_shown) };
                let value = ((random >> 16) % 2 == 0).then(|| format!("{task}-{number}"));
                let began = clock.fetch_add(1, Ordering::SeqCst);
                let call = async {
                    match &value {
                        Some(value) => fence.write("ledger", token, value.clone().into()).await,
                        None => fence.raise("ledger", token).await.map(drop),
                    }
                };
                let give_up = match (random >> 24) % 6 {
                    0 => Duration::from_micros((random >> 32) % 4_000),
                    _ => Duration::from_secs(3_600),
                };
                let done = tokio::time::timeout(give_up, call).await.unwrap_or_else(|dropped| {
                    Err(Error::Unknown { store: "dropped".into(), source: dropped.into() })
                });
                let ended = clock.fetch_add(1, Ordering::SeqCst);
                let answer = match done {
                    Ok(()) => Answer::Passed,
                    Err(Error::Refused(refused)) => Answer::Refused { later: refused.later() },
                    Err(Error::Unknown { .. }) => Answer::Unknown,
                    Err(error) => panic!("{token}: {error}"),
                };
                calls.push(Call { token, value, began, ended, answer });
            }
            calls
        });
    }
    let calls: Vec<Call> = tasks.join_all().await.into_iter().flatten().collect();
    let there = handles[0].read("ledger").await.unwrap();

    for call in &calls {
        let later = |other: &&Call| {
            conflict(call.token, other.token) && other.token.number() > call.token.number()
        };
        match call.answer {
            Answer::Passed => {
                let passed_before = |other: &&Call| {
                    later(other) && other.answer == Answer::Passed && other.ended < call.began
                };
                assert_eq!(calls.iter().find(passed_before).map(|_| call), None, "too late");
            }
            Answer::Refused { later: number } => {
                let explains = |other: &&Call| {
                    later(other)
                        && other.token.number() == number
                        && !matches!(other.answer, Answer::Refused { .. })
                        && other.began < call.ended
                };
                assert!(calls.iter().any(|other| explains(&other)), "no reason for {call:?}");
            }
            Answer::Unknown => {}
        }
    }
    // Nothing that was refused is there, and nothing that was overwritten before the last call
    // began.
    let value = there.value.map(|value| String::from_utf8(value.to_vec()).unwrap());
    let writes = || calls.iter().filter(|call| call.value.is_some());
    let passed = || writes().filter(|call| call.answer == Answer::Passed);
    match writes().find(|call| call.value == value) {
        Some(last) => {
            assert!(!matches!(last.answer, Answer::Refused { .. }), "refused, and there: {last:?}");
            let after = passed().find(|call| call.began > last.ended);
            assert!(after.is_none(), "{after:?} was overwritten by {last:?}");
        }
        None => assert_eq!(passed().count(), 0, "{value:?} is not what anybody wrote"),
    }
    let highest = calls.iter().filter(|call| call.answer == Answer::Passed);
    let highest = highest.map(|call| call.token.number()).max().unwrap();
    assert!(there.highest.any >= highest);
}

impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        self.began == other.began
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let path = folder.path().join(format!("{round}.db"));
        let open = || -> Arc<dyn Fence> { Arc::new(Sqlite::open(&path).unwrap()) };
        calls(vec![open(), open()]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_memory() {
    for _ in 0..20 {
        let fence = ObjectFence::open(Arc::new(InMemory::new())).await.unwrap();
        calls(vec![Arc::new(fence)]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_local_disk() {
    for _ in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let one = ObjectFence::local(folder.path()).await.unwrap();
        let other = ObjectFence::local(folder.path()).await.unwrap();
        calls(vec![Arc::new(one), Arc::new(other)]).await;
    }
}

/// While replies to all of it are lost.
#[tokio::test(flavor = "multi_thread")]
async fn in_s3_while_replies_are_lost() {
    for _ in 0..5 {
        let s3 = S3::start().await;
        let one = ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap();
        let other = ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap();
        s3.fails(Fault::LoseAnswers(1_000));
        calls(vec![Arc::new(one), Arc::new(other)]).await;
    }
}

/// The same in a bucket that started without `If-Match`.
#[tokio::test(flavor = "multi_thread")]
async fn in_s3_in_versions_while_replies_are_lost() {
    for _ in 0..3 {
        let s3 = S3::start().await;
        s3.fails(Fault::NoIfMatch);
        let one = ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap();
        s3.fails(Fault::None);
        let other = ObjectFence::open(Arc::new(s3::client(&s3.url))).await.unwrap();
        s3.fails(Fault::LoseAnswers(1_000));
        calls(vec![Arc::new(one), Arc::new(other)]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: ./test fences"]
async fn in_postgresql() {
    let server = Server::start().await;
    for round in 0..5 {
        let made = server.psql().arg("-c").arg(format!("CREATE DATABASE c{round}")).status();
        assert!(made.unwrap().success());
        let config = server.config().replace("dbname=postgres", &format!("dbname=c{round}"));
        let one = Postgres::connect(&config).await.unwrap();
        let other = Postgres::connect(&config).await.unwrap();
        calls(vec![Arc::new(one), Arc::new(other)]).await;
    }
}
