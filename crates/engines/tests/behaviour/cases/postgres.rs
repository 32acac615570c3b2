//! What only PostgreSQL can get wrong.

use crate::engine::unique;
use crate::servers::postgres::{PASSWORD, Postgres};
use holdfast_locks::{Error, Guard, Lock, Locks};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn url(rest: &str) -> String {
    format!("postgres://ana:{PASSWORD}@127.0.0.1:{}/{rest}", Postgres::shared().port)
}

async fn refusal(url: &str) -> Error {
    let builder = Locks::builder().timeout(Duration::from_secs(5));
    builder.connect(url).await.expect_err("it must be refused")
}

fn assert_error_contains(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "`{word}` is missing: {text}");
    }
}

/// Takes a lock without a limit on the wait, because a waiter makes one more attempt at the end of
/// it.
async fn served(lock: Lock) -> Guard {
    let served = tokio::time::timeout(Duration::from_secs(60), lock.acquire()).await;
    served.expect("the waiter is woken").unwrap()
}

/// Each mistake in a URL gets an error that says what it is and what to try.
#[tokio::test]
#[ignore = "needs PostgreSQL: ./test engines"]
async fn configuration_mistakes_are_reported() {
    let port = Postgres::shared().port;
    for recipe in ["lease", "advisory"] {
        let wrong = format!("postgres://ana:wrong@127.0.0.1:{port}/template1?recipe={recipe}");
        let error = refusal(&wrong).await;
        assert!(matches!(error, Error::Refused(_)), "{error:?}");
        assert_error_contains(&error, &["127.0.0.1", "password", "pg_hba.conf"]);

        let missing = format!("postgres://ana@127.0.0.1:{port}/template1?recipe={recipe}");
        assert_error_contains(&refusal(&missing).await, &["password"]);

        let database = url(&format!("nowhere?recipe={recipe}"));
        assert_error_contains(&refusal(&database).await, &["nowhere", "create the database"]);
    }
    assert_error_contains(&refusal(&url("template1?recipe=x")).await, &["`x`", "lease, advisory"]);
    assert_error_contains(
        &refusal(&url("template1?sslmode=on")).await,
        &["sslmode=on", "verify-full"],
    );
    assert_error_contains(&refusal(&url("template1?tabel=x")).await, &["`tabel`", "table"]);
    assert_error_contains(&refusal(&url("template1?table=a.b.c")).await, &["schema.name"]);
    assert_error_contains(
        &refusal(&url("template1?table=nowhere.x")).await,
        &["nowhere", "CREATE TABLE"],
    );
    let table = refusal(&url("template1?table=pg_catalog.pg_class")).await;
    assert_error_contains(&table, &["not made for locks", "?table="]);
}

/// An engine that is down, another protocol on the port, and a server that sends nothing.
#[tokio::test]
async fn other_servers_are_recognised() {
    let port = crate::servers::process::free_port();
    let error = refusal(&format!("postgres://ana@127.0.0.1:{port}/x")).await;
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    assert_error_contains(&error, &[&port.to_string(), "is it running?"]);

    for answer in ["HTTP/1.1 400 Bad Request\r\n\r\n", ""] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let _ = client.write_all(answer.as_bytes()).await;
                    let mut ignored = Vec::new();
                    let _ = client.read_to_end(&mut ignored).await;
                });
            }
        });
        let url = format!("postgres://ana:x@127.0.0.1:{port}/x?recipe=advisory");
        let builder = Locks::builder().timeout(Duration::from_secs(1));
        let error = builder.connect(&url).await.expect_err("it is no PostgreSQL");
        assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
        assert_error_contains(&error, &[&port.to_string(), "PostgreSQL"]);
    }
}

/// Each `sslmode` does what libpq's does: only `verify-full` checks the certificate.
#[tokio::test]
#[ignore = "needs PostgreSQL: ./test engines"]
async fn sslmode_is_respected() {
    let server = Postgres::shared();
    for mode in ["disable", "prefer", "require"] {
        Locks::connect(&url(&format!("template1?sslmode={mode}"))).await.unwrap();
    }
    assert_error_contains(&refusal(&url("template1?sslmode=verify-full")).await, &["sslrootcert"]);
    let certificate = server.certificate();
    let certificate = certificate.to_str().unwrap();
    let verified = |host: &str| {
        let port = server.port;
        let mode = format!("sslmode=verify-full&sslrootcert={certificate}");
        format!("postgresql://ana:{PASSWORD}@{host}:{port}/template1?{mode}")
    };
    Locks::connect(&verified("localhost")).await.unwrap();
    // The certificate is for `localhost` only.
    assert_error_contains(&refusal(&verified("127.0.0.1")).await, &["sslmode"]);
}

/// A table in another schema is a separate namespace.
#[tokio::test]
#[ignore = "needs PostgreSQL: ./test engines"]
async fn tables_are_separate() {
    let name = unique("table");
    let one = Locks::connect(&url("template1")).await.unwrap();
    let same = Locks::connect(&url("template1?table=public.holdfast_locks")).await.unwrap();
    let other = Locks::connect(&url("template1?table=Other%20locks")).await.unwrap();
    let guard = one.lock(&name).ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    assert!(same.lock(&name).try_acquire().await.unwrap().is_none());
    other.lock(&name).try_acquire().await.unwrap().expect("another table").release().await.unwrap();
    // A release is notified through either name of the table, long before the lease would end.
    let waiting = tokio::spawn(served(same.lock(&name)));
    tokio::time::sleep(Duration::from_millis(500)).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
}

/// A release while the listening connection is down is noticed once it is back, long before the
/// lease would end.
#[tokio::test]
#[ignore = "needs PostgreSQL: ./test engines"]
async fn missed_release_notification_is_noticed() {
    let name = unique("listener");
    let one = Locks::connect(&url("template1")).await.unwrap();
    let other = Locks::connect(&url("template1")).await.unwrap();
    let guard = one.lock(&name).ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    let waiting = tokio::spawn(served(other.lock(&name)));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'template1'";
    let ended = format!("{end} AND application_name = 'holdfast-locks listener'");
    assert!(Postgres::shared().psql("template1", &ended).contains('t'));
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
}

/// The listening connection was cut without a sign, for instance by a firewall. Waiters slept next
/// to a free lock until the lease of its last holder would have ended.
#[tokio::test]
#[ignore = "needs PostgreSQL: ./test engines"]
async fn disconnected_listener_is_replaced() {
    let engine = crate::servers::postgres::lease();
    let (proxies, waiting) = super::through_proxies(&engine, Duration::from_secs(4)).await;
    let (direct, name) = (engine.connect().await, unique("cut-off"));
    let guard = direct.lock(&name).ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    let waiting = tokio::spawn(served(waiting.lock(&name)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    proxies.iter().for_each(crate::proxy::Proxy::silence);
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
}

/// A waiter that knows of a late deadline is served when the holder shortens its lease.
#[tokio::test]
#[ignore = "needs PostgreSQL: ./test engines"]
async fn shortened_lease_is_noticed() {
    let name = unique("shortened");
    let locks = Locks::connect(&url("template1")).await.unwrap();
    let guard = locks.lock(&name).ttl(Duration::from_secs(3600)).fixed().acquire().await.unwrap();
    let waiting = tokio::spawn(served(locks.lock(&name)));
    tokio::time::sleep(Duration::from_millis(300)).await;
    guard.extend(Duration::from_secs(1)).await.unwrap();
    let next = waiting.await.unwrap();
    assert!(next.ending().is_some_and(|ending| ending.died && ending.token == guard.token()));
    next.release().await.unwrap();
}

/// A person in psql and an advisory lock exclude each other, and a holder whose session is ended by
/// the server notices at once, not when its TTL is over.
#[tokio::test]
#[ignore = "needs PostgreSQL: ./test engines"]
async fn advisory_lock_ends_with_its_session() {
    let name = unique("session");
    let locks = Locks::connect(&url("template1?recipe=advisory")).await.unwrap();
    let lock = locks.lock(&name).label(&name).ttl(Duration::from_secs(3600));
    let guard = lock.acquire().await.unwrap();
    let by_hand = format!("SELECT pg_try_advisory_lock(hashtextextended('{name}', 0))");
    assert_eq!(Postgres::shared().psql("template1", &by_hand), "f");
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name =";
    assert_eq!(Postgres::shared().psql("template1", &format!("{end} '{name}'")), "t");
    let lost = tokio::time::timeout(Duration::from_secs(60), guard.lost()).await;
    lost.expect("the holder hears that its session has ended");
    assert!(guard.is_lost());
    assert!(matches!(guard.release().await, Err(Error::NotHeld(_))));
    assert_eq!(Postgres::shared().psql("template1", &by_hand), "t");
}

#[test]
#[ignore = "needs PostgreSQL: ./test engines"]
fn lost_replies_are_settled() {
    for engine in [crate::servers::postgres::lease, crate::servers::postgres::advisory] {
        crate::engine::run(engine, "settled_answers", async |engine| {
            super::settled_answers(engine).await
        });
    }
}
