//! A PostgreSQL server that accepts connections and does not answer, at each step of a call, and
//! one that gives up on its synchronous replica.

use crate::rules::exclusive;
use crate::support::postgres::Server;
use holdfast_fence::postgres::Postgres;
use holdfast_fence::{Error, Fence};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A call ends after 30 s. The rest is for a busy machine.
const ENDS: Duration = Duration::from_secs(90);

async fn ends<T>(call: impl Future<Output = Result<T, Error>>) -> Error {
    match tokio::time::timeout(ENDS, call).await {
        Ok(Err(error)) => error,
        Ok(Ok(_)) => panic!("it succeeded"),
        Err(_) => panic!("it hangs"),
    }
}

/// `connect_timeout` only covers the TCP connection: a server that accepted it and sent nothing
/// held up the caller forever.
#[tokio::test(flavor = "multi_thread")]
async fn unresponsive_server_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let accepts = tokio::spawn(async move {
        let mut all = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            all.push(connection);
        }
    });
    let config = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
    let error = ends(Postgres::connect(&config)).await;
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("nothing was written: no reply within 10s"), "{error}");
    accepts.abort();
}

/// A proxy between the fence and the server. Goes silent when the client sends a given text.
struct Proxy {
    config: String,
    silent: Arc<AtomicBool>,
}

impl Proxy {
    async fn start(server: &Server, at: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (silent, upstream) = (Arc::<AtomicBool>::default(), server.port());
        let armed = silent.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", upstream)).await.unwrap();
                tokio::spawn(forward(client, server, at, armed.clone()));
            }
        });
        let config = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
        Self { config, silent }
    }
}

async fn forward(mut client: TcpStream, mut server: TcpStream, at: &[u8], armed: Arc<AtomicBool>) {
    let (mut request, mut reply) = ([0; 8_192], [0; 8_192]);
    let mut silent = false;
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let Ok(bytes @ 1..) = read else { return };
                let has = request[..bytes].windows(at.len()).any(|window| window == at);
                silent = silent || (has && armed.load(Ordering::SeqCst));
                // What is sent is carried out, and never answered.
                if server.write_all(&request[..bytes]).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut reply) => {
                let Ok(bytes @ 1..) = read else { return };
                if !silent && client.write_all(&reply[..bytes]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// The server goes silent at each step of a write. Before the commit nothing can have happened;
/// after it, nobody knows.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: ./test fences"]
async fn silent_server_does_not_block_calls() {
    let server = Server::start().await;
    let direct = Postgres::connect(&server.config()).await.unwrap();
    direct.write("ledger", exclusive(34), "a".into()).await.unwrap();
    for (at, commits) in
        [(&b"START TRANSACTION"[..], false), (b"INSERT", false), (b"COMMIT\0", true)]
    {
        let proxy = Proxy::start(&server, at).await;
        let fence = Postgres::connect(&proxy.config).await.unwrap();
        fence.write("ledger", exclusive(34), "a".into()).await.unwrap();
        proxy.silent.store(true, Ordering::SeqCst);
        let error = ends(fence.write("ledger", exclusive(34), "b".into())).await;
        let (step, text) = (String::from_utf8_lossy(at), error.to_string());
        assert_eq!(matches!(error, Error::Unknown { .. }), commits, "{step}: {error}");
        assert_eq!(text.contains("nothing was written"), !commits, "{step}: {error}");
        assert_eq!(text.contains("may have taken effect"), commits, "{step}: {error}");
        // Its connection is closed, so that the row is free for the next holder.
        let there = direct.raise("ledger", exclusive(34)).await.unwrap();
        assert_eq!(there.value, Some(if commits { "b".into() } else { "a".into() }), "{step}");
        proxy.silent.store(false, Ordering::SeqCst);
        fence.write("ledger", exclusive(34), "a".into()).await.unwrap();
    }
}

/// A commit waited for its synchronous replica, and an operator cancelled that. PostgreSQL reports
/// success with a warning: the commit is in its own log alone, and a failover to the replica loses
/// it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: ./test fences"]
async fn unreplicated_commit_is_not_confirmed() {
    let server = Server::start().await;
    let fence = Arc::new(Postgres::connect(&server.config()).await.unwrap());
    fence.write("ledger", exclusive(34), "a".into()).await.unwrap();
    let (admin, connection) =
        tokio_postgres::connect(&server.config(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    for sql in ["ALTER SYSTEM SET synchronous_standby_names = 'missing'", "SELECT pg_reload_conf()"]
    {
        admin.batch_execute(sql).await.unwrap();
    }
    let waits = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let writer = fence.clone();
    let mut write = tokio::spawn(async move {
        // Until the server has read its new settings.
        loop {
            match writer.write("ledger", exclusive(35), "b".into()).await {
                Ok(()) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) => return error,
            }
        }
    });
    let mut cancelled = 0;
    let error = loop {
        for row in admin.query(waits, &[]).await.unwrap() {
            admin.execute("SELECT pg_cancel_backend($1)", &[&row.get::<_, i32>(0)]).await.unwrap();
            cancelled += 1;
        }
        match tokio::time::timeout(Duration::from_millis(50), &mut write).await {
            Ok(error) => break error.unwrap(),
            Err(_) => assert!(cancelled < 100, "a cancelled wait counts as success"),
        }
    };
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    assert!(error.to_string().contains("synchronous replication"), "{error}");
    // Nobody cancels it now: it is not confirmed either.
    let error = ends(fence.write("ledger", exclusive(35), "c".into())).await;
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    for sql in ["ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()"] {
        admin.batch_execute(sql).await.unwrap();
    }
    let retried = tokio::time::timeout(ENDS, async {
        while fence.write("ledger", exclusive(35), "d".into()).await.is_err() {}
    });
    retried.await.expect("the same token passes again");
}
