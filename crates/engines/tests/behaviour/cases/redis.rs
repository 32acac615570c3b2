//! What only Redis has: other clients with the same recipe, Redlock's majority, logins and TLS.

use crate::engine::{Engine, run, unique};
use crate::servers::holdfast::redis_door;
use crate::servers::process::ask;
use crate::servers::redis::{Redis, single, single_on_disk};
use holdfast_locks::{Error, Locks};
use std::time::Duration;

/// A server's reply to a command typed by hand, without the reply to `QUIT`.
fn command(address: &str, line: &str) -> String {
    let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
    let answer = ask(port, &format!("{line}\r\nQUIT\r\n"));
    answer.strip_suffix("+OK\r\n").unwrap_or(&answer).trim_end().to_owned()
}

/// Clients such as redis-py's `Lock` set the same key to their own value: the second one is
/// refused, and neither can release what the other holds.
async fn other_clients(engine: &Engine) {
    let (locks, name) = (engine.connect().await, unique("others"));
    let server = &engine.hosts[0];
    let take = format!("SET {name} 5f0c NX PX 60000");
    let guard = locks.lock(&name).acquire().await.unwrap();
    assert_eq!(command(server, &take), "$-1", "taken beside a holder");
    guard.release().await.unwrap();

    assert_eq!(command(server, &take), "+OK");
    let refused = locks.lock(&name).wait(Duration::from_millis(300)).acquire().await;
    let Err(Error::TimedOut { holder }) = refused else { panic!("{refused:?}") };
    assert_eq!(holder.as_deref(), Some("5f0c"));
    let seen = locks.inspect(&name).await.unwrap().expect("it is held");
    assert_eq!(seen.holder.as_deref(), Some("5f0c"));

    // The release of a holder that does not publish it is noticed too.
    let waiting = locks.lock(&name).acquire();
    let waiting = tokio::spawn(waiting);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(command(server, &format!("DEL {name}")), ":1");
    waiting.await.unwrap().unwrap().release().await.unwrap();

    // Redisson keeps a hash under the name of its lock.
    assert_eq!(command(server, &format!("HSET {name} client 1")), ":1");
    assert!(locks.lock(&name).try_acquire().await.unwrap().is_none());
    let seen = locks.inspect(&name).await.unwrap().expect("it is held");
    assert_eq!(seen.holder, None);
    assert_eq!(command(server, &format!("DEL {name}")), ":1");
}

#[test]
fn other_clients_and_ours_exclude_each_other_on_the_redis_door() {
    run(redis_door, "other_clients", async |engine| other_clients(engine).await);
}

#[test]
#[ignore = "needs Redis: ./test engines"]
fn other_clients_and_ours_exclude_each_other() {
    run(single, "other_clients", async |engine| other_clients(engine).await);
}

/// Redis keeps a lock across a restart if it syncs every write, which a driver can't know.
#[test]
#[ignore = "needs Redis: ./test engines"]
fn redis_with_appendfsync_always_keeps_locks_across_restarts() {
    run(single_on_disk, "restart", async |engine| super::restart(engine).await);
}

/// A waiter is subscribed to releases of its lock, but no longer than it waits.
async fn subscription(engine: &Engine) {
    let (locks, name) = (engine.connect().await, unique("channel"));
    let count = format!("PUBSUB NUMSUB holdfast-locks:{name}");
    let subscribed = async |expected: &str| {
        for _ in 0..500 {
            if command(&engine.hosts[0], &count).ends_with(expected) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{} instead of {expected}", command(&engine.hosts[0], &count));
    };
    let guard = locks.lock(&name).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock(&name).acquire());
    subscribed(":1").await;
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    subscribed(":0").await;
    guard.release().await.unwrap();
}

#[test]
#[ignore = "needs Redis: ./test engines"]
fn waiters_listen_for_releases() {
    run(single, "subscription", async |engine| subscription(engine).await);
}

/// The server's statistics about `PUBLISH` so far.
fn published(address: &str) -> Option<String> {
    let stats = command(address, "INFO commandstats");
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_publish:calls="));
    Some(calls?.split_once(',')?.0.to_owned())
}

fn on_own_servers<const N: usize>(work: impl AsyncFnOnce([Redis; N])) {
    let servers = Redis::start_several::<N>();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let done = runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(180), work(servers)).await });
    assert!(done.is_ok(), "it hangs");
}

fn url(servers: &[Redis]) -> String {
    let hosts: Vec<String> = servers.iter().map(Redis::address).collect();
    format!("redis://{}", hosts.join(","))
}

async fn connect(url: &str) -> Locks {
    let builder = Locks::builder().timeout(Duration::from_secs(4));
    builder.connect(url).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Redlock needs a majority, and no more: with one of three servers down, or taken by another
/// client, locks are taken, kept and released; with two down they are not.
#[test]
#[ignore = "needs Redis: ./test engines"]
fn redlock_needs_a_majority() {
    on_own_servers::<3>(async |servers| {
        use crate::servers::Server as _;
        let (locks, others) = (connect(&url(&servers)).await, connect(&url(&servers)).await);
        let ttl = Duration::from_secs(2);

        // One server has a key that none of these clients has set.
        let addresses = servers.each_ref().map(Redis::address);
        assert_eq!(command(&addresses[0], "SET seat 5f0c"), "+OK");
        let guard = locks.lock("seat").ttl(ttl).acquire().await.unwrap();
        assert!(others.lock("seat").try_acquire().await.unwrap().is_none());
        let seen = others.inspect("seat").await.unwrap().expect("a majority has it");
        assert_ne!(seen.holder.as_deref(), Some("5f0c"));
        guard.release().await.unwrap();
        assert_eq!(others.inspect("seat").await.unwrap(), None);
        assert_eq!(command(&addresses[0], "GET seat"), "$4\r\n5f0c");

        // A majority has it: nobody gets it, and a refused attempt leaves nothing on the third.
        assert_eq!(command(&addresses[1], "SET seat 5f0c"), "+OK");
        // Nor does it wake other waiters, whose attempts would wake the next, endlessly.
        let told = published(&addresses[2]);
        assert!(locks.lock("seat").try_acquire().await.unwrap().is_none());
        assert_eq!(command(&addresses[2], "GET seat"), "$-1");
        assert_eq!(published(&addresses[2]), told);

        servers[0].process.kill();
        let guard = locks.lock("table").ttl(ttl).acquire().await.unwrap();
        let refused = others.lock("table").wait(ttl * 3).acquire().await;
        assert!(matches!(refused, Err(Error::TimedOut { .. })), "{refused:?}");
        assert!(!guard.is_lost(), "two of three are enough to renew");
        guard.release().await.unwrap();

        let guard = locks.lock("table").ttl(ttl).acquire().await.unwrap();
        servers[1].process.kill();
        guard.lost().await;
        let refused = locks.lock("chair").try_acquire().await;
        assert!(matches!(refused, Err(Error::Unreachable(_))), "{refused:?}");
        servers[0].process.restart();
        servers[1].process.restart();
        let guard = locks.lock("chair").wait(Duration::from_secs(30)).acquire().await.unwrap();
        guard.release().await.unwrap();
    });
}

/// Users, passwords and database numbers, as in Redis URLs.
#[test]
#[ignore = "needs Redis: ./test engines"]
fn logins_and_databases() {
    on_own_servers::<1>(async |[server]| {
        let address = server.address();
        let user = "ACL SETUSER ana on >s3cret ~seat* &* +@all";
        assert_eq!(command(&address, user), "+OK");
        let zero = connect(&format!("redis://ana:s3cret@{address}")).await;
        let two = connect(&format!("redis://ana:s3cret@{address}/2")).await;
        let guards = [
            zero.lock("seat").try_acquire().await.unwrap().expect("it is free in 0"),
            two.lock("seat").try_acquire().await.unwrap().expect("it is free in 2"),
        ];
        assert_eq!(command(&address, "CONFIG SET requirepass hunter2"), "+OK");
        for guard in guards {
            guard.release().await.unwrap();
        }
        // This user has no permission for other keys.
        let refused = zero.lock("table").try_acquire().await;
        let Err(Error::Refused(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("NOPERM") && why.contains(&address), "{why}");

        let refused = [
            ("redis://{}", "NOAUTH"),
            ("redis://:hunter3@{}", "password"),
            ("redis://ana:hunter3@{}", "password"),
            ("redis://ana:s3cret@{}/99", "DB index is out of range"),
        ];
        for (url, expected) in refused {
            let url = url.replace("{}", &address);
            let error = Locks::connect(&url).await.unwrap_err();
            assert!(matches!(error, Error::Refused(_)), "{url}: {error:?}");
            let said = error.to_string();
            assert!(said.contains(expected) && !said.contains("hunter3"), "{url}: {said}");
        }
    });
}

/// `rediss://` checks the server's certificate, against the system's authorities or a file of
/// authorities.
#[test]
#[ignore = "needs Redis: ./test engines"]
fn tls() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (server, port, authorities) = Redis::start_tls();
    runtime.block_on(async {
        let file = authorities.to_str().unwrap();
        let url = format!("rediss://localhost:{port}?ssl_ca_certs={file}");
        let guard = connect(&url).await.lock("seat").acquire().await.unwrap();
        let plain = connect(&format!("redis://{}", server.address())).await;
        assert!(plain.lock("seat").try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();

        // An unknown authority, a name that is not in the certificate, a port without TLS.
        let wrong = [
            format!("rediss://localhost:{port}"),
            format!("rediss://127.0.0.2:{port}?ssl_ca_certs={file}"),
            format!("rediss://{}?ssl_ca_certs={file}", server.address()),
        ];
        for url in wrong {
            let error = Locks::connect(&url).await.unwrap_err();
            assert!(matches!(error, Error::Unreachable(_)), "{url}: {error:?}");
        }
    });
}
