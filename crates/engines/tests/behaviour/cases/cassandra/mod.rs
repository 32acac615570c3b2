//! What only Cassandra can get wrong.

#[cfg(feature = "holdfast")]
mod failed_writes;
#[cfg(feature = "holdfast")]
mod replicas;
mod tutorial;

use crate::engine::unique;
use crate::servers::cassandra::Cassandra;
use crate::servers::certificates::Certificate;
use crate::servers::process::free_port;
use holdfast_locks::{Error, Locks};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;

fn url(rest: &str) -> String {
    format!("cassandra://127.0.0.1:{}/{rest}", Cassandra::shared().port)
}

async fn refusal(url: &str) -> Error {
    let builder = Locks::builder().timeout(Duration::from_secs(10));
    builder.connect(url).await.expect_err("it must be refused")
}

fn assert_error_contains(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "`{word}` is missing: {text}");
    }
}

/// Each mistake in a URL gets an error that says what it is and what to try.
#[tokio::test]
#[ignore = "needs Cassandra: ./test engines"]
async fn configuration_mistakes_are_reported() {
    assert_error_contains(
        &refusal(&url("")).await,
        &["not a keyspace", "cassandra://host:9042/keyspace"],
    );
    assert_error_contains(&refusal(&url("a-b")).await, &["`a-b`", "letters, digits"]);
    let missing = refusal(&url("nowhere")).await;
    assert!(matches!(missing, Error::Refused(_)), "{missing:?}");
    assert_error_contains(&missing, &["nowhere", "CREATE KEYSPACE", "?replication_factor=3"]);
    assert_error_contains(
        &refusal(&url("examples?replication_factor=0")).await,
        &["replication_factor=0"],
    );
    assert_error_contains(&refusal(&url("examples?recipe=x")).await, &["recipe=x", "bakery"]);
    assert_error_contains(&refusal(&url("examples?plain=yes")).await, &["plain=yes"]);
    assert_error_contains(&refusal(&url("examples?recipe=bakery&plain=1")).await, &["recipe=lwt"]);
    assert_error_contains(
        &refusal(&url("examples?tabel=x")).await,
        &["`tabel`", "replication_factor"],
    );
    // A keyspace whose table of that name is Cassandra's own.
    let tables = refusal(&url("system_schema")).await;
    assert!(matches!(tables, Error::Refused(_)), "{tables:?}");
}

/// The first clients of a keyspace connected at the same time. One of them found a table that another
/// had just created and that could not be used yet, and was refused: "not made for locks".
#[tokio::test]
#[ignore = "needs Cassandra: ./test engines"]
async fn first_clients_of_a_keyspace_can_connect_concurrently() {
    for round in 0..5 {
        let url = url(&format!("first_{}_{round}?replication_factor=1", std::process::id()));
        let connect = || {
            tokio::spawn({
                let url = url.clone();
                async move { Locks::connect(&url).await.map(drop) }
            })
        };
        let clients: Vec<_> = (0..6).map(|_| connect()).collect();
        for client in clients {
            client.await.unwrap().unwrap();
        }
    }
}

/// An engine that is down, another protocol on the port, and a server that sends nothing.
#[tokio::test]
async fn other_servers_are_recognised() {
    let port = free_port();
    let error = refusal(&format!("cassandra://127.0.0.1:{port}/x")).await;
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    assert_error_contains(&error, &[&port.to_string(), "is it running"]);

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
        let builder = Locks::builder().timeout(Duration::from_secs(1));
        let connected = builder.connect(&format!("cassandra://127.0.0.1:{port}/x")).await;
        let error = connected.expect_err("it is no Cassandra");
        assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
        assert_error_contains(&error, &[&port.to_string(), "Cassandra"]);
    }
}

/// A wrong or missing password is refused as such, not as a server that can't be reached.
#[tokio::test]
#[ignore = "needs Cassandra: ./test engines"]
async fn passwords_are_checked() {
    let server = tokio::task::spawn_blocking(Cassandra::with_passwords).await.unwrap();
    let url = |user: &str| format!("cassandra://{user}127.0.0.1:{}/examples", server.port);
    // The first role is created some time after the start.
    let right = format!("{}?replication_factor=1", url("cassandra:cassandra@"));
    let mut connected = Locks::connect(&right).await;
    for _ in 0..60 {
        if connected.is_ok() {
            break;
        }
        sleep(Duration::from_secs(1)).await;
        connected = Locks::connect(&right).await;
    }
    connected.expect("the right password is taken");
    for user in ["cassandra:wrong@", "nobody:wrong@", ""] {
        let error = refusal(&url(user)).await;
        assert!(matches!(error, Error::Refused(_)), "{user}: {error:?}");
        assert_error_contains(&error, &["check user and password"]);
    }
}

/// `plain=1` is what a person with the well-known table does: it and the full recipe exclude each
/// other, and a holder without a token is shown as such.
#[tokio::test]
#[ignore = "needs Cassandra: ./test engines"]
async fn plain_and_full_locks_exclude_each_other() {
    let name = unique("table");
    let full = Locks::connect(&url("examples?replication_factor=1")).await.unwrap();
    let plain = Locks::connect(&url("examples?plain=1")).await.unwrap();
    let guard = full.lock(&name).acquire().await.unwrap();
    assert!(plain.lock(&name).try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    let guard = plain.lock(&name).label("person").acquire().await.unwrap();
    assert!(full.lock(&name).try_acquire().await.unwrap().is_none());
    let seen = full.inspect(&name).await.unwrap().expect("it is held");
    assert_eq!((seen.holder.as_deref(), seen.token), (Some("person"), None));
    guard.release().await.unwrap();
}

/// A lease that was extended to less than it had ends on time: the row must not outlive its owner,
/// as a row made by INSERT would, held by nobody and blocking everybody.
#[tokio::test]
#[ignore = "needs Cassandra: ./test engines"]
async fn shortened_lease_leaves_no_ghost() {
    for recipe in ["lwt", "bakery"] {
        let name = unique("shortened");
        let url = url(&format!("examples?replication_factor=1&recipe={recipe}"));
        let locks = Locks::connect(&url).await.unwrap();
        let long = Duration::from_secs(3600);
        let guard = locks.lock(&name).ttl(long).fixed().acquire().await.unwrap();
        guard.extend(Duration::from_secs(10)).await.unwrap();
        let next = locks.lock(&name).wait(Duration::from_secs(60)).acquire().await.unwrap();
        assert!(guard.is_lost());
        next.release().await.unwrap();
    }
}

/// Waiters that gave up removed their rows in the background, but a program that exited right after
/// did not finish that: they stayed in line until their TTL was over.
#[tokio::test]
#[ignore = "needs Cassandra: ./test engines"]
async fn leaving_the_bakery_removes_all_rows() {
    let (url, name) = (url("examples?replication_factor=1&recipe=bakery"), unique("leaving"));
    let (locks, others) =
        (Locks::connect(&url).await.unwrap(), Locks::connect(&url).await.unwrap());
    let guard = locks.lock(&name).ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let line = async || locks.inspect(&name).await.unwrap().unwrap().line.unwrap();
    let long = Duration::from_secs(600);
    for _ in 0..5 {
        let lock = others.lock(&name).ttl(long).wait(Duration::from_secs(1));
        let refused = lock.acquire().await;
        assert!(matches!(refused, Err(Error::TimedOut { .. })), "{refused:?}");
        assert_eq!(line().await, [""; 0]);
    }
    let dropped =
        tokio::time::timeout(Duration::from_secs(1), others.lock(&name).ttl(long).acquire());
    assert!(dropped.await.is_err());
    others.close().await;
    assert_eq!(line().await, [""; 0]);
    guard.release().await.unwrap();
}

#[test]
#[ignore = "needs Cassandra: ./test engines"]
fn lost_replies_are_settled() {
    use crate::servers::cassandra::{bakery, lwt, plain};
    for engine in [lwt, plain, bakery] {
        crate::engine::run(engine, "settled_answers", async |engine| {
            super::settled_answers(engine).await
        });
    }
}

/// `ssl=true` checks the server's certificate, against a file of authorities or the system's.
#[tokio::test]
#[ignore = "needs Cassandra: ./test engines"]
async fn tls() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = Certificate::make(folder.path(), "server", "IP:127.0.0.1");
    let other = Certificate::of_somebody_else(folder.path());
    let (server, certificate) =
        tokio::task::spawn_blocking(move || (Cassandra::with_tls(&certificate), certificate))
            .await
            .unwrap();
    let url = |options: &str| {
        let host = format!("127.0.0.1:{}", server.port);
        format!("cassandra://{host}/examples?replication_factor=1{options}")
    };
    let right = format!("&ssl=true&certfile={}", certificate.file.display());
    let locks = Locks::connect(&url(&right)).await.unwrap();
    let plain = Locks::connect(&url("")).await.unwrap();
    let guard = locks.lock("seat").acquire().await.unwrap();
    assert!(plain.lock("seat").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();

    let wrong = format!("&ssl=true&certfile={}", other.file.display());
    for options in [wrong.as_str(), "&ssl=true"] {
        let error = refusal(&url(options)).await;
        assert!(matches!(error, Error::Unreachable(_)), "{options}: {error:?}");
        assert_error_contains(&error, &["certificate"]);
    }
    for (options, words) in [
        ("&ssl=yes", "neither `true` nor `false`"),
        ("&certfile=x.pem", "ssl=true"),
        ("&ssl=true&certfile=nowhere.pem", "nowhere.pem"),
        ("&ssl=true&usercert=x.pem", "go together"),
    ] {
        let error = refusal(&url(options)).await;
        assert!(matches!(error, Error::BadUrl(_)), "{options}: {error:?}");
        assert_error_contains(&error, &[words]);
    }
}
