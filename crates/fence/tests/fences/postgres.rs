//! What is specific to PostgreSQL, against a real one: `./test fences`.

use crate::rules::{behaves, exclusive, many_at_once};
use crate::support::postgres::Server;
use holdfast_fence::postgres::{self, Postgres};
use holdfast_fence::{Error, Fence};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::{Client, NoTls};

async fn connect(server: &Server) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.config(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: ./test fences"]
async fn postgresql_behaves() {
    let mut server = Server::start().await;
    let fence = Arc::new(Postgres::connect(&server.config()).await.unwrap());
    behaves(&*fence, "ledger").await;
    many_at_once(fence.clone(), "crowded").await;

    // What it has acknowledged survives a crash, and the fence reconnects by itself.
    fence.write("ledger", exclusive(50), "kept".into()).await.unwrap();
    server.crash();
    let error = fence.write("ledger", exclusive(51), "lost".into()).await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. } | Error::Unavailable { .. }), "{error}");
    let error = fence.raise("ledger", exclusive(51)).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("is unavailable, nothing was written"), "{error}");
    server.start_again().await;
    let there = fence.read("ledger").await.unwrap();
    assert_eq!((there.highest.any, there.value), (50, Some("kept".into())));
    let error = fence.write("ledger", exclusive(49), "late".into()).await.unwrap_err();
    assert_eq!(error.refused().expect("refused").later(), 50);
}

/// 34's transaction has passed the fence, and is not committed. 35 gets in only after it, so it
/// sees what 34 wrote; and 34 no longer gets in.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: ./test fences"]
async fn applications_update_is_fenced_in_its_own_transaction() {
    let server = Server::start().await;
    let (mut old, mut new) = (connect(&server).await, connect(&server).await);
    postgres::create_table(&old).await.unwrap();
    let accounts = "CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT);
        INSERT INTO accounts VALUES (7, 100)";
    old.batch_execute(accounts).await.unwrap();
    let balance = "SELECT balance FROM accounts WHERE id = 7";

    let first = old.transaction().await.unwrap();
    postgres::check(&first, "accounts/7", exclusive(34)).await.unwrap();
    let waits = tokio::spawn(async move {
        let second = new.transaction().await.unwrap();
        postgres::check(&second, "accounts/7", exclusive(35)).await.unwrap();
        let balance: i64 = second.query_one(balance, &[]).await.unwrap().get(0);
        let update = "UPDATE accounts SET balance = $1 WHERE id = 7";
        second.execute(update, &[&(balance - 30)]).await.unwrap();
        second.commit().await.unwrap();
    });
    first.execute("UPDATE accounts SET balance = 50 WHERE id = 7", &[]).await.unwrap();
    first.commit().await.unwrap();
    waits.await.unwrap();

    let late = old.transaction().await.unwrap();
    let error = postgres::check(&late, "accounts/7", exclusive(34)).await.unwrap_err();
    assert_eq!(error.refused().expect("refused").later(), 35);
    late.rollback().await.unwrap();
    assert_eq!(old.query_one(balance, &[]).await.unwrap().get::<_, i64>(0), 20);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: ./test fences"]
async fn full_or_missing_database_is_reported() {
    let server = Server::start().await;
    let fence = Postgres::connect(&server.config()).await.unwrap();
    fence.write("ledger", exclusive(34), "100".into()).await.unwrap();
    // The server's error when its disk is full.
    let full = "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
        CREATE TRIGGER full_disk BEFORE UPDATE ON holdfast_fences
            FOR EACH ROW EXECUTE FUNCTION full_disk()";
    let admin = connect(&server).await;
    admin.batch_execute(full).await.unwrap();
    let error = fence.write("ledger", exclusive(35), "70".into()).await.unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert!(error.to_string().contains("could not extend file"), "{error}");
    let there = fence.read("ledger").await.unwrap();
    assert_eq!((there.highest.any, there.value), (34, Some("100".into())));

    for (config, printed) in [
        ("", "hostaddr are missing"),
        (
            "host=127.0.0.1 port=1 user=x password=secret",
            "PostgreSQL at 127.0.0.1:1 is unavailable",
        ),
        ("host=127.0.0.1 port=none", "port"),
    ] {
        let error = Postgres::connect(config).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{config:?}: {error}");
        assert!(error.to_string().contains(printed), "{config:?}: {error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

/// An application's transaction had locked the row of one resource. The fence's calls shared one
/// connection, so all other resources waited as well, forever.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: ./test fences"]
async fn locked_row_does_not_block_other_resources() {
    let server = Server::start().await;
    let config = format!("{} options='-c lock_timeout=3s'", server.config());
    let fence = Arc::new(Postgres::connect(&config).await.unwrap());
    fence.write("locked", exclusive(34), "100".into()).await.unwrap();
    let mut other = connect(&server).await;
    let transaction = other.transaction().await.unwrap();
    postgres::check(&transaction, "locked", exclusive(34)).await.unwrap();

    // More than there are connections.
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let fence = fence.clone();
        waiting.spawn(async move { fence.write("locked", exclusive(35), "70".into()).await });
    }
    tokio::task::yield_now().await;
    for number in 0..50 {
        let resource = format!("free-{number}");
        fence.write(&resource, exclusive(35), "x".into()).await.unwrap();
    }
    // Nobody waits forever: the first gives up.
    let first = waiting.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(matches!(first, Error::Busy { .. }), "{first}");
    transaction.commit().await.unwrap();
    for answer in waiting.join_all().await {
        assert!(matches!(answer, Ok(()) | Err(Error::Busy { .. })), "{answer:?}");
    }
    assert_eq!(fence.read("locked").await.unwrap().value, Some("70".into()));
}

/// Where transactions are serializable by default, one of two concurrent calls failed with "could
/// not serialize access", instead of waiting for the other.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: ./test fences"]
async fn calls_serialize_under_any_default_isolation() {
    let server = Server::start().await;
    for level in ["serializable", "repeatable read"] {
        let database = level.replace(' ', "_");
        let admin = connect(&server).await;
        admin.batch_execute(&format!("CREATE DATABASE {database}")).await.unwrap();
        let alter =
            format!("ALTER DATABASE {database} SET default_transaction_isolation TO '{level}'");
        admin.batch_execute(&alter).await.unwrap();
        let config = server.config().replace("dbname=postgres", &format!("dbname={database}"));
        let one = Arc::new(Postgres::connect(&config).await.unwrap());
        let other = Arc::new(Postgres::connect(&config).await.unwrap());
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..100 {
            let fence = if number % 2 == 0 { one.clone() } else { other.clone() };
            tasks.spawn(async move {
                fence.write("ledger", exclusive(35), number.to_string().into()).await
            });
        }
        for answer in tasks.join_all().await {
            answer.unwrap();
        }
    }
}

/// Only the application can rerun its own transaction.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: ./test fences"]
async fn serialization_failure_has_a_hint() {
    let server = Server::start().await;
    let (mut one, other) = (connect(&server).await, connect(&server).await);
    postgres::create_table(&one).await.unwrap();
    let transaction = one
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::Serializable)
        .start()
        .await
        .unwrap();
    transaction.query("SELECT * FROM holdfast_fences", &[]).await.unwrap();
    let sql = "INSERT INTO holdfast_fences VALUES ('accounts/7', 34, 34)";
    other.batch_execute(sql).await.unwrap();
    let error = postgres::check(&transaction, "accounts/7", exclusive(35)).await.unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    assert!(error.to_string().contains("must be rolled back"), "{error}");
}

/// When a [`Proxy`] cuts a connection; each happens once.
const NEVER: u8 = 0;
const BEFORE_THE_STATEMENT: u8 = 1;
const BEFORE_THE_COMMIT: u8 = 2;
const AFTER_THE_COMMIT: u8 = 3;

/// A proxy between the fence and the server.
struct Proxy {
    config: String,
    cuts: Arc<AtomicU8>,
}

impl Proxy {
    async fn start(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cuts, upstream) = (Arc::<AtomicU8>::default(), server.port());
        let when = cuts.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", upstream)).await.unwrap();
                tokio::spawn(forward(client, server, when.clone()));
            }
        });
        let config = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
        Self { config, cuts }
    }
}

async fn forward(mut client: TcpStream, mut server: TcpStream, cuts: Arc<AtomicU8>) {
    let (mut request, mut reply) = ([0; 8_192], [0; 8_192]);
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let Ok(bytes @ 1..) = read else { return };
                let has = |text: &[u8]| request[..bytes].windows(text.len()).any(|at| at == text);
                let cut = cuts.load(Ordering::SeqCst);
                let here = match cut {
                    BEFORE_THE_STATEMENT => has(b"INSERT"),
                    // Not READ COMMITTED.
                    BEFORE_THE_COMMIT | AFTER_THE_COMMIT => has(b"COMMIT\0"),
                    _ => false,
                };
                if here {
                    cuts.store(NEVER, Ordering::SeqCst);
                }
                if here && cut != AFTER_THE_COMMIT {
                    return;
                }
                server.write_all(&request[..bytes]).await.unwrap();
                if here {
                    // It has been carried out when the server replies.
                    let _ = server.read(&mut reply).await;
                    return;
                }
            }
            read = server.read(&mut reply) => {
                let Ok(bytes @ 1..) = read else { return };
                if client.write_all(&reply[..bytes]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// The connection breaks at each step of a write. Until the commit was sent, nothing can have
/// happened, and the fence retries by itself; after that, it can't know.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: ./test fences"]
async fn only_an_unanswered_commit_leaves_the_outcome_unknown() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let fence = Postgres::connect(&proxy.config).await.unwrap();
    let direct = Postgres::connect(&server.config()).await.unwrap();
    let write = async |cut: u8, value: &'static str| {
        proxy.cuts.store(cut, Ordering::SeqCst);
        fence.write("ledger", exclusive(34), value.into()).await
    };
    let value = async || direct.read("ledger").await.unwrap().value;
    write(NEVER, "a").await.unwrap();
    write(BEFORE_THE_STATEMENT, "b").await.unwrap();
    assert_eq!(value().await, Some("b".into()));
    let error = write(BEFORE_THE_COMMIT, "c").await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    assert_eq!(value().await, Some("b".into()));
    let error = write(AFTER_THE_COMMIT, "d").await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    assert_eq!(value().await, Some("d".into()));
    write(NEVER, "e").await.unwrap();
    assert_eq!(value().await, Some("e".into()));
}
