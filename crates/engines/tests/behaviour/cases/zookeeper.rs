//! What only ZooKeeper can get wrong.

use crate::engine::unique;
use crate::proxy::{Mode, Proxy};
use crate::servers::Server;
use crate::servers::certificates::Certificate;
use crate::servers::process::free_port;
use crate::servers::zookeeper::{SESSION_TIMEOUT_MAX, ZooKeeper, mode};
use holdfast_locks::{Error, Locks};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use zookeeper_client::{Acls, Client, CreateMode, LockOptions, LockPrefix};

fn host() -> String {
    format!("127.0.0.1:{}", ZooKeeper::shared().port)
}

async fn refusal(url: &str) -> Error {
    let builder = Locks::builder().timeout(Duration::from_secs(3));
    builder.connect(url).await.expect_err("it must be refused")
}

fn assert_error_contains(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "`{word}` is missing: {text}");
    }
}

/// A program with Curator's recipe on the same path and this library exclude each other.
#[tokio::test]
#[ignore = "needs ZooKeeper: ./test engines"]
async fn curator_locks_and_ours_exclude_each_other() {
    let locks = Locks::connect(&format!("zookeeper://{}/locks", host())).await.unwrap();
    let (name, curator) = (unique("curator"), Client::connect(&host()).await.unwrap());
    let folder = format!("/locks/{name}");
    let take = || async {
        let options = LockOptions::new(Acls::anyone_all());
        let folders = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let options = options.with_ancestor_options(folders).unwrap();
        let prefix = LockPrefix::new_curator(&folder, "lock-").unwrap();
        curator.lock(prefix, b"192.0.2.1", options).await.unwrap()
    };
    let held = take().await;
    assert!(locks.lock(&name).try_acquire().await.unwrap().is_none());
    let seen = locks.inspect(&name).await.unwrap().unwrap();
    assert_eq!(seen.holder.as_deref(), Some("192.0.2.1"));
    let waiting = tokio::spawn(locks.lock(&name).label("ana").acquire());
    while locks.inspect(&name).await.unwrap().unwrap().line != Some(vec!["ana".to_owned()]) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(held);
    let guard = waiting.await.unwrap().unwrap();
    let refused = tokio::time::timeout(Duration::from_millis(300), take()).await;
    assert!(refused.is_err(), "Curator's lock was served beside the holder");
    guard.release().await.unwrap();
    drop(take().await);
}

/// The server limits session timeouts: a lock with a longer TTL is still renewed in time, and held
/// for as long as its guard exists.
#[tokio::test]
#[ignore = "needs ZooKeeper: ./test engines"]
async fn ttl_beyond_the_servers_limit_works() {
    let locks = Locks::connect(&format!("zookeeper://{}", host())).await.unwrap();
    let name = unique("long");
    let guard = locks.lock(&name).ttl(Duration::from_secs(600)).acquire().await.unwrap();
    assert!(guard.remaining() <= SESSION_TIMEOUT_MAX * 2 / 3, "{:?}", guard.remaining());
    let refused = locks.lock(&name).wait(SESSION_TIMEOUT_MAX).acquire().await;
    assert!(matches!(refused, Err(Error::TimedOut { .. })), "{refused:?}");
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
}

/// A lease that is not renewed can't be longer than the session: it is refused, instead of ending
/// early.
#[tokio::test]
#[ignore = "needs ZooKeeper: ./test engines"]
async fn fixed_lease_beyond_the_servers_limit_is_refused() {
    let locks = Locks::connect(&format!("zookeeper://{}", host())).await.unwrap();
    let (name, long) = (unique("fixed"), SESSION_TIMEOUT_MAX * 2);
    let refused = locks.lock(&name).ttl(long).fixed().acquire().await;
    assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
    assert_error_contains(&refused.unwrap_err(), &["timeout of 12s", "ask for less"]);
    assert_eq!(locks.inspect(&name).await.unwrap(), None);

    let guard = locks.lock(&name).ttl(SESSION_TIMEOUT_MAX).fixed().acquire().await.unwrap();
    let refused = guard.extend(long).await;
    assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
    guard.extend(SESSION_TIMEOUT_MAX).await.unwrap();
    guard.release().await.unwrap();
}

/// A lock whose node was deleted by hand: the holder notices.
#[tokio::test]
#[ignore = "needs ZooKeeper: ./test engines"]
async fn manually_deleted_lock_is_lost() {
    let locks = Locks::connect(&format!("zookeeper://{}", host())).await.unwrap();
    let (name, by_hand) = (unique("by-hand"), Client::connect(&host()).await.unwrap());
    let guard = locks.lock(&name).ttl(Duration::from_secs(6)).acquire().await.unwrap();
    let children = by_hand.list_children(&format!("/{name}")).await.unwrap();
    let [node] = children.as_slice() else { panic!("{children:?}") };
    by_hand.delete(&format!("/{name}/{node}"), None).await.unwrap();
    let lost = tokio::time::timeout(Duration::from_secs(60), guard.lost()).await.unwrap();
    assert!(lost.to_string().contains("deleted"), "{lost}");
    let released = guard.release().await;
    assert!(matches!(released, Err(Error::NotHeld(_))), "{released:?}");
}

/// The leader of three servers dies while a lock is held: the session continues on another server,
/// the lock stays held, can be extended and released, and tokens keep rising.
#[tokio::test]
#[ignore = "needs ZooKeeper: ./test engines"]
async fn held_lock_survives_the_death_of_the_leader() {
    let ensemble = tokio::task::spawn_blocking(|| ZooKeeper::ensemble(3)).await.unwrap();
    let leads = |server: &&ZooKeeper| mode(server.port).as_deref() == Some("leader");
    let leader = ensemble.iter().find(leads).expect("one leads");
    let hosts: Vec<_> =
        ensemble.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
    let builder = Locks::builder().timeout(Duration::from_secs(30));
    let locks = builder.connect(&format!("zookeeper://{}", hosts.join(","))).await.unwrap();
    let ttl = SESSION_TIMEOUT_MAX;
    let guard = locks.lock("seat").ttl(ttl).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("seat").ttl(ttl).label("ana").acquire());
    while locks.inspect("seat").await.unwrap().unwrap().line != Some(vec!["ana".to_owned()]) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    leader.process.kill();
    // On a busy machine the election may outlast the session: then the holder knows.
    let extended = guard.extend(ttl).await;
    assert!(extended.is_ok() || guard.is_lost(), "{extended:?}");
    assert!(!waiting.is_finished() || guard.is_lost(), "the lock was lost with the leader");
    let token = guard.token();
    let released = guard.release().await;
    assert!(matches!(released, Ok(()) | Err(Error::NotHeld(_))), "{released:?}");
    let next = tokio::time::timeout(Duration::from_secs(90), waiting).await.unwrap();
    let next = next.unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}

/// The reply to the create of a node is lost: the node is found again by its name, and no second
/// one is created.
#[tokio::test]
#[ignore = "needs ZooKeeper: ./test engines"]
async fn znode_whose_reply_was_lost_is_found() {
    let proxy = Proxy::start(host()).await;
    let locks = Locks::connect(&format!("zookeeper://{}", proxy.address)).await.unwrap();
    let (name, direct) = (unique("lost-node"), Client::connect(&host()).await.unwrap());
    let folder = format!("/{name}");
    // The session and the folder exist already.
    locks.lock(&name).acquire().await.unwrap().release().await.unwrap();
    proxy.set(Mode::LoseAnswers);
    let taking = tokio::spawn(locks.lock(&name).acquire());
    let node = loop {
        if let [node] = direct.list_children(&folder).await.unwrap().as_slice() {
            break node.clone();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    proxy.cut();
    proxy.set(Mode::Open);
    let guard = taking.await.unwrap().unwrap();
    let children = direct.list_children(&folder).await.unwrap();
    assert_eq!(children, std::slice::from_ref(&node));
    let stat = direct.check_stat(&format!("{folder}/{node}")).await.unwrap().unwrap();
    assert_eq!(guard.token().map(u64::from), u64::try_from(stat.czxid).ok());
    guard.release().await.unwrap();
    assert!(direct.list_children(&folder).await.unwrap().is_empty());
}

/// Nodes created with a user and password belong to them: others are refused.
#[tokio::test]
#[ignore = "needs ZooKeeper: ./test engines"]
async fn users_and_passwords() {
    let (host, name) = (host(), unique("private"));
    let ana = Locks::connect(&format!("zookeeper://ana:p%40ss@{host}")).await.unwrap();
    let guard = ana.lock(&name).acquire().await.unwrap();
    for other in [format!("zookeeper://ana:wrong@{host}"), format!("zookeeper://{host}")] {
        let other = Locks::connect(&other).await.unwrap();
        let refused = other.lock(&name).try_acquire().await;
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
        assert_error_contains(&refused.unwrap_err(), &["check the user and password"]);
    }
    guard.release().await.unwrap();
}

/// Each mistake gets an error in time that says what it is and what to try.
#[tokio::test]
#[ignore = "needs ZooKeeper: ./test engines"]
async fn configuration_mistakes_are_reported() {
    let (host, closed) = (host(), free_port());
    let error = refusal(&format!("zookeeper://127.0.0.1:{closed}")).await;
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    assert_error_contains(
        &error,
        &[&format!("127.0.0.1:{closed}"), "refused", "is ZooKeeper running"],
    );

    // Another protocol, and a server that sends nothing.
    for greeting in [&b"-ERR unknown command\r\n"[..], b""] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                stream.write_all(greeting).await.unwrap();
                open.push(stream);
            }
        });
        let error = refusal(&format!("zookeeper://{address}")).await;
        assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
        assert_error_contains(&error, &[&address.to_string(), "client port"]);
    }

    for (rest, words) in [
        (format!("{host}/a//b"), "empty part"),
        (format!("{host}?ttl=3"), "unknown option `ttl`"),
        (format!("ana@{host}"), "USER:PASSWORD"),
    ] {
        assert_error_contains(&refusal(&format!("zookeeper://{rest}")).await, &[words]);
    }

    // A server in the list that is down does not matter.
    let locks = Locks::connect(&format!("zookeeper://127.0.0.1:{closed},{host}")).await.unwrap();
    for (name, words) in [
        ("/a", "empty part"),
        ("a/", "empty part"),
        ("a/../b", "`..`"),
        ("a\u{7}", "character"),
        ("zookeeper/a", "own"),
        ("a/x-lock-0000000001", "looks like"),
    ] {
        let refused = locks.lock(name).try_acquire().await;
        assert!(matches!(refused, Err(Error::Unsupported(_))), "{name}: {refused:?}");
        assert_error_contains(&refused.unwrap_err(), &[words]);
        assert!(matches!(locks.inspect(name).await, Err(Error::Unsupported(_))));
    }
    locks.lock(unique("fine")).acquire().await.unwrap().release().await.unwrap();
}

/// `use_ssl=true` checks the server's certificate: its authority and its name.
#[tokio::test]
#[ignore = "needs ZooKeeper: ./test engines"]
async fn tls() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = Certificate::make(folder.path(), "server", "IP:127.0.0.1");
    let other = Certificate::of_somebody_else(folder.path());
    let ((server, port), certificate) =
        tokio::task::spawn_blocking(move || (ZooKeeper::secure(&certificate), certificate))
            .await
            .unwrap();
    let url = |host: &str, ca: &Certificate| {
        format!("zookeeper://{host}:{port}?use_ssl=true&ca={}", ca.file.display())
    };
    let locks = Locks::connect(&url("127.0.0.1", &certificate)).await.unwrap();
    let plain = Locks::connect(&format!("zookeeper://127.0.0.1:{}", server.port)).await.unwrap();
    let guard = locks.lock("seat").acquire().await.unwrap();
    assert!(plain.lock("seat").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();

    // Another authority, a name that is not in the certificate, a port without TLS.
    let without = format!("zookeeper://127.0.0.1:{}?use_ssl=true", server.port);
    let without = format!("{without}&ca={}", certificate.file.display());
    for url in [url("127.0.0.1", &other), url("localhost", &certificate), without] {
        let error = refusal(&url).await;
        assert!(matches!(error, Error::Unreachable(_)), "{url}: {error:?}");
        assert_error_contains(&error, &["certificate", "`ca`"]);
    }
    for (options, words) in [
        ("use_ssl=yes", "neither `true` nor `false`"),
        ("use_ssl=true", "needs `ca=FILE`"),
        ("ca=x.pem", "use_ssl=true"),
        ("use_ssl=true&ca=nowhere.pem", "nowhere.pem"),
    ] {
        let error = refusal(&format!("zookeeper://127.0.0.1:{port}?{options}")).await;
        assert!(matches!(error, Error::BadUrl(_)), "{options}: {error:?}");
        assert_error_contains(&error, &[words]);
    }
}
